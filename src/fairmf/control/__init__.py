"""Choose fairness and settings by what they do on validation users."""
