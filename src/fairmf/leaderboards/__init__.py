"""Run public leaderboards: tune our models on validation data, test them once, and show published rows beside them."""
