"""Show comparisons: the report page, tables, plots, run records."""
