"""3b. Backends: where arithmetic runs. `contract` says what a backend supplies, `registry` finds one by name."""

from fairmf.backends.contract import Backend, Diagonalised, Factors, Matrix, RankOne, RowSums, SubspaceKernels, Vector
from fairmf.backends.registry import CHOICES, NAMES, available, chosen, get_backend

__all__ = [
    "Backend", "Diagonalised", "Factors", "Matrix", "RankOne", "RowSums", "SubspaceKernels", "Vector", "NAMES",
    "CHOICES", "get_backend", "chosen", "available",
]  # fmt: skip
