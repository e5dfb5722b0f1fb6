"""What the autoencoders are made of, as functions of tensors. Parameters live in dictionaries: no module, no pickle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairmf.interactions import Rows

Tensor = Any  # torch.Tensor; PyTorch is an extra
Parameters = dict[str, Tensor]


def dense_rows(torch: Any, rows: Rows, n_items: int, device: Any) -> Tensor:
    """A batch of sparse rows as a matrix: batch x items, the one place where zeros are stored."""
    matrix = np.zeros((rows.count, n_items), dtype=np.float32)
    users = np.repeat(np.arange(rows.count), np.diff(rows.indptr))
    matrix[users, rows.indices] = 1.0 if rows.weights is None else rows.weights
    return torch.from_numpy(matrix).to(device)


def normalised(x: Tensor) -> Tensor:
    """Rows of length 1; rows of zeros stay."""
    return x / x.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)


def dropped(torch: Any, x: Tensor, rate: float, generator: Any) -> Tensor:
    """Each number is 0 with probability `rate`, the others grow so that the mean stays."""
    if rate == 0:
        return x
    kept = torch.rand(x.shape, generator=generator, device=x.device) >= rate
    return x * kept / (1 - rate)


def linear(parameters: Parameters, name: str, x: Tensor) -> Tensor:
    """x W' + b."""
    return x @ parameters[f"{name}.weight"].T + parameters[f"{name}.bias"]


def sampled(torch: Any, mu: Tensor, logvar: Tensor, generator: Any) -> Tensor:
    """One draw from Normal(mu, exp(logvar)), through which gradients pass."""
    noise = torch.randn(mu.shape, generator=generator, device=mu.device)
    return mu + (0.5 * logvar).exp() * noise


def multinomial_loss(torch: Any, logits: Tensor, x: Tensor) -> Tensor:
    """- sum_j x_j log softmax_j of every row: minus the log likelihood, up to what does not depend on the model."""
    return -(torch.log_softmax(logits, dim=1) * x).sum(1)


def kl_to_standard(mu: Tensor, logvar: Tensor) -> Tensor:
    """KL(Normal(mu, exp(logvar)) | Normal(0, 1)) of every row."""
    return 0.5 * (mu.square() + logvar.exp() - logvar - 1).sum(1)


def log_normal(x: Tensor, mu: Tensor, logvar: Tensor) -> Tensor:
    """log Normal(x; mu, exp(logvar)) of every coordinate."""
    return -0.5 * (logvar + math.log(2 * math.pi) + (x - mu).square() / logvar.exp())


def uniform_layer(
    torch: Any, name: str, inputs: int, outputs: int, weight: float, bias: float, generator: Any, device: Any
) -> Parameters:
    """A layer with weights and biases uniform within +-weight and +-bias."""
    shapes = {f"{name}.weight": ((outputs, inputs), weight), f"{name}.bias": ((outputs,), bias)}
    return {
        key: (2 * torch.rand(shape, generator=generator, device=device) - 1) * limit
        for key, (shape, limit) in shapes.items()
    }
