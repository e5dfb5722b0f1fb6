"""iALS: alternating least squares for implicit feedback (Hu et al. 2008, in the form of Rendle et al. 2021).

Minimises F of objective.py with lambda_f = 0. Equals FairALS with fairness 0; FiADMM with fairness 0 reaches the same
minimum.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairmf.models.alternating import AlternatingModel


@dataclass(eq=False)
class IALS(AlternatingModel):
    """Implicit ALS with frequency-scaled L2. No fairness term in training; the dial works all the same."""
