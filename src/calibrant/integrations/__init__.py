"""Adapters to other libraries, each behind its own extra."""
