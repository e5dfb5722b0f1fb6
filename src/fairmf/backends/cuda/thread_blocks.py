"""Compute how a block of threads is laid out for a number of factors. It needs no device."""

from __future__ import annotations

import math

WIDEST = 1024  # factors that one warp holds in registers; longer vectors are split among several warps
WARPS = 4  # warps of a block, unless a vector needs more
CACHED = 64  # entries of a row whose vectors are cached from one pass to the next
CACHE_BYTES = 48 << 10  # shared memory that a block may take for this cache


class BlockShape:
    """Compute the constants of gathering.cuh for a number of factors."""

    def __init__(self, factors: int):
        self.factors = factors
        self.floats_at_once = self._floats_at_once()
        self.slices = math.ceil(factors / WIDEST)
        self.groups = max(1, WARPS // self.slices)
        self.threads = 32 * self.slices * self.groups
        columns = math.ceil(factors / self.slices / self.floats_at_once) * self.floats_at_once
        self.lane_floats = math.ceil(columns / (32 * self.floats_at_once)) * self.floats_at_once
        at_once = self.groups * self._entries_at_once()
        padded = 4 * 32 * self.slices * self.lane_floats
        self.cached_rounds = min(CACHED, CACHE_BYTES // padded) // at_once
        self.cache_bytes = self.cached_rounds * at_once * padded

    def defines(self, half: bool, own: bool = False) -> dict[str, int]:
        """Return the macros to compile with, for float16 (`half`) and for right-hand sides of rows (`own`)."""
        return {
            "D": self.factors, "VEC": self.floats_at_once, "SLICES": self.slices, "GROUPS": self.groups,
            "HALF": int(half), "OWN": int(own), "CACHED": self.cached_rounds,
        }  # fmt: skip

    def _floats_at_once(self) -> int:
        """Return how many floats a lane loads at once: as many as divide the vector and keep all 32 lanes busy."""
        if self.factors % 4 == 0 and self.factors >= 128:
            return 4
        return 2 if self.factors % 2 == 0 and self.factors >= 64 else 1

    def _entries_at_once(self) -> int:
        """Return BATCH of gathering.cuh: the entries that a group of warps gathers at once."""
        lane = self.lane_floats
        return 8 if lane <= 4 else 4 if lane <= 8 else 2 if lane <= 16 else 1
