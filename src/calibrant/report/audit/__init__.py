"""The audit as a page: what prediction files are worth, in words, tables and pictures."""

from calibrant.report.audit.writing import check_report, write_audit, write_scored

__all__ = ["check_report", "write_audit", "write_scored"]
