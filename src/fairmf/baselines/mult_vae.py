"""Train Mult-VAE (Liang et al. 2018), a variational autoencoder for implicit feedback.

    x -> normalise, dropout -> tanh(hidden) -> mu, log variance -> z -> tanh(hidden) -> softmax over items
    loss = - sum_j x_j log p_j + beta KL(q(z|x) | Normal(0, 1)),        beta = min(anneal_cap, updates / anneal_steps)

Weights start as Glorot and Bengio propose, biases near 0. Equals a denoising autoencoder with noise on z when
anneal_cap is 0.
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
    kl_to_standard,
    linear,
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

SMALL_BIAS = 0.002


@dataclass(eq=False)
class MultVAE(Autoencoder):
    """Mult-VAE: a variational autoencoder with a multinomial likelihood and an annealed KL term.

    Parameters
    ----------
    factors, hidden, dropout, epochs, batch_size, learning_rate, random_state, num_threads, device
        Size and training of the network; the same for all autoencoders (docs/baselines.md).
    anneal_cap
        Largest weight beta of the KL term.
    anneal_steps
        Updates after which that weight would reach 1.

    Examples
    --------
    >>> from fairmf import EarlyStopping, MultVAE, split_by_user, synthetic
    >>> split = split_by_user(synthetic(400, 200, 9000), heldout=60, protocol="seeded")
    >>> model = MultVAE(factors=16, hidden=32, epochs=2)
    >>> model.fit(split.train, callbacks=[EarlyStopping(split.validation)])  # doctest: +SKIP
    """

    anneal_cap: float = setting(0.2, "Largest weight of the KL term.", symbol="beta", low=0)
    anneal_steps: int = setting(200_000, "Updates after which that weight would reach 1.", low=1, integer=True)

    def kl_weight(self, updates: int) -> float:
        """Return beta after this many updates."""
        return min(self.anneal_cap, updates / self.anneal_steps)

    def _shapes(self, n_items: int) -> dict[str, tuple[int, ...]]:
        sizes = {
            "encoder": (n_items, self.hidden), "latent": (self.hidden, 2 * self.factors),
            "middle": (self.factors, self.hidden), "decoder": (self.hidden, n_items),
        }  # fmt: skip
        shapes: dict[str, tuple[int, ...]] = {}
        for name, (inputs, outputs) in sizes.items():
            shapes |= {f"{name}.weight": (outputs, inputs), f"{name}.bias": (outputs,)}
        return shapes

    def _start(self, torch: ModuleType, n_items: int, generator: Generator, device: torch_device) -> Parameters:
        parameters: Parameters = {}
        for name in ("encoder", "latent", "middle", "decoder"):
            outputs, inputs = self._shapes(n_items)[f"{name}.weight"]
            limit = math.sqrt(6 / (inputs + outputs))
            parameters |= uniform_layer(torch, name, inputs, outputs, limit, SMALL_BIAS, generator, device)
        return parameters

    def _trained(self, parameters: Parameters) -> dict[str, list[str]]:
        return {"all": list(parameters)}

    def _posterior(self, parameters: Parameters, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mu and log variance of z given a normalised history."""
        hidden = linear(parameters, "encoder", x).tanh()
        both = linear(parameters, "latent", hidden)
        return both[:, : self.factors], both[:, self.factors :]

    def _user_vectors(self, torch: ModuleType, parameters: Parameters, x: Tensor) -> Tensor:  # noqa: ARG002
        mu, _ = self._posterior(parameters, normalised(x))
        return linear(parameters, "middle", mu).tanh()

    def _terms(self, training: Training, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the reconstruction loss and the KL term, as means over the batch."""
        torch, parameters, generator = training.torch, training.parameters, training.generator
        mu, logvar = self._posterior(parameters, dropped(torch, normalised(x), self.dropout, generator))
        z = sampled(torch, mu, logvar, generator)
        logits = linear(parameters, "decoder", linear(parameters, "middle", z).tanh())
        return multinomial_loss(torch, logits, x).mean(), kl_to_standard(mu, logvar).mean()

    def _epoch(self, training: Training, data: Interactions) -> dict[str, float]:
        optimiser = training.optimisers["all"]
        sums, users = [0.0, 0.0, 0.0], 0
        for x in self._batches(training, data):
            reconstruction, kl = self._terms(training, x)
            loss = reconstruction + self.kl_weight(training.updates) * kl
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            training.updates += 1
            for k, term in enumerate((loss, reconstruction, kl)):
                # The terms are means over a batch, and the last batch may be smaller.
                sums[k] += float(term.detach()) * len(x)
            users += len(x)
        means = dict(zip(("loss", "reconstruction", "kl"), (s / users for s in sums), strict=True))
        return means | {"kl_weight": self.kl_weight(training.updates)}
