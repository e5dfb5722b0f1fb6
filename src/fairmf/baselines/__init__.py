"""Baselines that need PyTorch (extra `[vae]`). PyTorch is imported when one of them is fitted or loaded."""
