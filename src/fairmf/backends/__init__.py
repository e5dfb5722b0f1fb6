"""Run the arithmetic: `contract` defines what a backend has to supply, `registry` finds one by name."""
