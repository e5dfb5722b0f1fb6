"""Baselines that need PyTorch (extra `[vae]`): variational autoencoders with a multinomial likelihood.

PyTorch is imported when one of them is fitted or loaded, not before.
"""

from fairmf.baselines.mult_vae import MultVAE
from fairmf.baselines.rec_vae import RecVAE

__all__ = ["MultVAE", "RecVAE"]
