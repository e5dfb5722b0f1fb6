"""What a fit on a cluster costs: formulas, and a replay of its messages."""
