"""3. Models: what is minimised, one file (or folder) per model, by the paper's name."""

from fairmf.models.fair_als import FairALS
from fairmf.models.fairness_weights import group_weights
from fairmf.models.fiadmm import FiADMM
from fairmf.models.ials import IALS
from fairmf.models.persistence import load_model
from fairmf.models.popularity import Popularity

__all__ = ["FairALS", "FiADMM", "IALS", "Popularity", "group_weights", "load_model"]
