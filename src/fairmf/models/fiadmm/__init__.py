"""fiADMM, exactly as the paper (Togashi & Abe, arXiv 2209.04394; SPEC 4)."""

from fairmf.models.fiadmm.model import FiADMM

__all__ = ["FiADMM"]
