"""Compare with neural baselines, which need PyTorch (extra `[vae]`). It is imported when one is fitted or loaded."""
