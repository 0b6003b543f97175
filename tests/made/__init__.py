"""What tests of several packages share: made rows, predictions and runs, and runs of the command line."""
