"""Monitors of deployed models: windows of predictions, late labels, and alarms that may be looked at any time."""
