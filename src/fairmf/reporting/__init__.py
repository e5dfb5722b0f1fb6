"""7. Reporting: comparisons as tables, JSON and pages."""
