"""Compare with rivals: re-rankers, linear models, and autoencoders (which need PyTorch, extra `[vae]`)."""
