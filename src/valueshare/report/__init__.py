"""Figures, tables and the page: functions of records."""
