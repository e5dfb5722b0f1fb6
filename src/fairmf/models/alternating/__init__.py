"""Alternating least squares on the objective with or without its fairness term: the engine of FairALS and IALS."""

from fairmf.models.alternating.model import AlternatingModel

__all__ = ["AlternatingModel"]
