"""Faults that calibrant must survive: a few of each kind in the suite, as many as you like by `make faults`."""
