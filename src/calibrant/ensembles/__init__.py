"""Ensembles: the mean of several models' probabilities on the same rows, and calibration before or after it."""

from calibrant.ensembles.averaging import average, save_average
from calibrant.ensembles.orders import ORDERS, OrderScore, compare_orders

__all__ = ["ORDERS", "OrderScore", "average", "compare_orders", "save_average"]
