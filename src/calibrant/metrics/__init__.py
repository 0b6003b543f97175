"""Metrics: how honest predicted probabilities are."""

from calibrant.metrics.bins import expected_calibration_error as expected_calibration_error
