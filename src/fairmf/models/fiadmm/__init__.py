"""fiADMM, exactly as the paper (Togashi & Abe, arXiv 2209.04394; docs/mathematics.md 4)."""

from fairmf.models.fiadmm.model import FiADMM

__all__ = ["FiADMM"]
