"""3a. Solvers: how all rows of one side are solved while the other side is fixed."""

from fairmf.solvers.half_step import HalfStep

__all__ = ["HalfStep"]
