"""Run the arithmetic: `contract` says what a backend supplies, `registry` finds one by name."""
