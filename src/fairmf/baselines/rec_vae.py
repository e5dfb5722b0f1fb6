"""Train RecVAE (Shenbin et al. 2020): a deep encoder, a composite prior, encoder and decoder trained in turns.

    encoder    h_k = norm(swish(W_k h_{k-1} + h_1 + ... + h_{k-1})), k = 1..5, from normalised, noisy x;
               then mu and log variance
    decoder    softmax(W z + b)
    prior      in every coordinate, the mixture 3/20 Normal(0, 1) + 3/4 posterior of the encoder as it was after its
               last turn + 1/10 Normal(0, e^10)
    loss       - sum_j x_j log p_j + kl_scale |x|_1 (log q(z|x) - log prior(z)),   z one draw from q(z|x)

An epoch has three steps: `encoder_passes` over the users train the encoder alone, with dropout; the encoder is copied
into the prior; `decoder_passes` over the users train the decoder alone, without dropout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from fairmf.baselines.autoencoder import (
    Autoencoder,
    Parameters,
    Training,
    dropped,
    linear,
    log_normal,
    multinomial_loss,
    normalised,
    sampled,
    uniform_layer,
)
from fairmf.data.interactions import Interactions
from fairmf.params import setting

if TYPE_CHECKING:
    from torch import Generator, Tensor
    from torch import device as torch_device

DEPTH = 5
NORM_EPSILON = 0.1  # as in the authors' code; the usual value is far smaller
MIXTURE = (3 / 20, 3 / 4, 1 / 10)  # weights in the prior: standard normal, old posterior, wide normal
WIDE = 10.0  # log variance of the wide normal
OLD = "old."  # prefix of the prior's copy of the encoder


@dataclass(eq=False)
class RecVAE(Autoencoder):
    """RecVAE: an autoencoder with a composite prior and alternating updates of encoder and decoder.

    Parameters
    ----------
    factors, hidden, dropout, epochs, batch_size, learning_rate, random_state, num_threads, device
        Size and training of the network; the same for all autoencoders (docs/baselines.md).
    kl_scale
        Weight gamma of the KL term per interaction of a user.
    encoder_passes, decoder_passes
        Passes over the users per epoch that train the encoder, then the decoder.

    Examples
    --------
    >>> from fairmf import EarlyStopping, RecVAE, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = RecVAE(factors=16, hidden=32, epochs=2)
    >>> model.fit(split.train, callbacks=[EarlyStopping(split.validation)])  # doctest: +SKIP
    """

    learning_rate: float = setting(5e-4, "Step size of Adam.", above=0)
    kl_scale: float = setting(0.005, "Weight of the KL term per interaction of a user.", symbol="gamma", low=0)
    encoder_passes: int = setting(3, "Passes over the users per epoch that train the encoder.", low=1, integer=True)
    decoder_passes: int = setting(1, "Passes over the users per epoch that train the decoder.", low=1, integer=True)

    def _encoder_sizes(self, n_items: int) -> dict[str, tuple[int, int]]:
        layers = {f"layer{k}": (self.hidden if k else n_items, self.hidden) for k in range(DEPTH)}
        return layers | {"mu": (self.hidden, self.factors), "logvar": (self.hidden, self.factors)}

    def _shapes(self, n_items: int) -> dict[str, tuple[int, ...]]:
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (inputs, outputs) in (self._encoder_sizes(n_items) | {"decoder": (self.factors, n_items)}).items():
            shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
        for k in range(DEPTH):
            shapes |= {f"norm{k}.weight": (self.hidden,), f"norm{k}.bias": (self.hidden,)}
        return shapes

    def _start(self, torch: ModuleType, n_items: int, generator: Generator, device: torch_device) -> Parameters:
        parameters: Parameters = {}
        for name, (inputs, outputs) in (self._encoder_sizes(n_items) | {"decoder": (self.factors, n_items)}).items():
            # How PyTorch's own linear layers start.
            limit = 1 / math.sqrt(inputs)
            parameters |= uniform_layer(torch, name, inputs, outputs, limit, limit, generator, device)
        for k in range(DEPTH):
            parameters[f"norm{k}.weight"] = torch.ones(self.hidden, device=device)
            parameters[f"norm{k}.bias"] = torch.zeros(self.hidden, device=device)
        return parameters | {OLD + key: x.clone() for key, x in parameters.items() if not key.startswith("decoder")}

    def _trained(self, parameters: Parameters) -> dict[str, list[str]]:
        decoder = [key for key in parameters if key.startswith("decoder")]
        return {
            "encoder": [key for key in parameters if key not in decoder and not key.startswith(OLD)],
            "decoder": decoder,
        }

    def _posterior(
        self, torch: ModuleType, parameters: Parameters, x: Tensor, which: str = ""
    ) -> tuple[Tensor, Tensor]:
        """Return mu and log variance of z for a normalised history, by the current encoder or the prior's copy."""
        done: Tensor | float = 0.0
        hidden = x
        for k in range(DEPTH):
            raw = linear(parameters, f"{which}layer{k}", hidden) + done
            scale, offset = (parameters[f"{which}norm{k}.{part}"] for part in ("weight", "bias"))
            hidden = torch.layer_norm(raw * raw.sigmoid(), (self.hidden,), scale, offset, NORM_EPSILON)
            done = done + hidden
        return linear(parameters, f"{which}mu", hidden), linear(parameters, f"{which}logvar", hidden)

    def _user_vectors(self, torch: ModuleType, parameters: Parameters, x: Tensor) -> Tensor:
        return self._posterior(torch, parameters, normalised(x))[0]

    def _log_prior(self, torch: ModuleType, parameters: Parameters, x: Tensor, z: Tensor) -> Tensor:
        """Return the log density of the prior for every coordinate of z."""
        # The old encoder belongs to the prior, which is not trained.
        with torch.no_grad():
            mu, logvar = self._posterior(torch, parameters, normalised(x), OLD)
        zero = torch.zeros_like(mu)
        parts = (log_normal(z, zero, zero), log_normal(z, mu, logvar), log_normal(z, zero, zero + WIDE))
        weighted = [part + math.log(share) for part, share in zip(parts, MIXTURE, strict=True)]
        return torch.logsumexp(torch.stack(weighted), dim=0)

    def _terms(self, training: Training, x: Tensor, dropout: float) -> tuple[Tensor, Tensor]:
        """Return the reconstruction loss and the weighted KL term, as means over the batch."""
        torch, parameters, generator = training.torch, training.parameters, training.generator
        mu, logvar = self._posterior(torch, parameters, dropped(torch, normalised(x), dropout, generator))
        z = sampled(torch, mu, logvar, generator)
        kl = (log_normal(z, mu, logvar) - self._log_prior(torch, parameters, x, z)).sum(1)
        reconstruction = multinomial_loss(torch, linear(parameters, "decoder", z), x)
        return reconstruction.mean(), (self.kl_scale * x.sum(1) * kl).mean()

    def _pass(self, training: Training, data: Interactions, part: str, dropout: float) -> dict[str, float]:
        """Go through all users once and train the encoder or the decoder (`part`)."""
        # No gradients for the part that this pass leaves alone.
        for optimiser in training.optimisers.values():
            for group in optimiser.param_groups:
                for tensor in group["params"]:
                    tensor.requires_grad_(optimiser is training.optimisers[part])
        optimiser, sums, users = training.optimisers[part], [0.0, 0.0], 0
        for x in self._batches(training, data):
            reconstruction, kl = self._terms(training, x, dropout)
            optimiser.zero_grad()
            (reconstruction + kl).backward()
            optimiser.step()
            training.updates += 1
            # The terms are means over a batch, and the last batch may be smaller.
            sums = [s + float(term.detach()) * len(x) for s, term in zip(sums, (reconstruction, kl), strict=True)]
            users += len(x)
        means = dict(zip(("reconstruction", "kl"), (s / users for s in sums), strict=True))
        return {"loss": sum(means.values())} | means

    def _epoch(self, training: Training, data: Interactions) -> dict[str, float]:
        for _ in range(self.encoder_passes):
            self._pass(training, data, "encoder", self.dropout)
        self._update_prior(training)
        for _ in range(self.decoder_passes):
            terms = self._pass(training, data, "decoder", 0.0)
        return terms

    def _update_prior(self, training: Training) -> None:
        """Copy the current encoder into the prior."""
        for key, tensor in training.parameters.items():
            if key.startswith(OLD):
                tensor.copy_(training.parameters[key.removeprefix(OLD)].detach())
