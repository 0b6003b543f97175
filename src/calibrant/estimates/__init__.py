"""Estimates without labels: whether and how a target differs from a reference."""

from calibrant.estimates.shift_tests import ShiftTest, shift_tests

__all__ = ["ShiftTest", "shift_tests"]
