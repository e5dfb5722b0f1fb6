"""How a block of threads is laid out for a number of factors. Plain arithmetic: it runs without a device."""

from __future__ import annotations

import math

WIDEST = 1024  # factors one warp holds in registers; longer vectors are shared by several warps
WARPS = 4  # warps of a block where a vector needs no more
CACHED = 64  # entries of a row whose vectors are kept from one pass to the next
CACHE_BYTES = 48 << 10  # and how much of a multiprocessor's memory a block may take for it


class BlockShape:
    """The constants of gathering.cuh."""

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

    def defines(self, half: bool) -> dict[str, int]:
        """For the compiler."""
        return {
            "D": self.factors, "VEC": self.floats_at_once, "SLICES": self.slices, "GROUPS": self.groups,
            "HALF": int(half), "CACHED": self.cached_rounds,
        }  # fmt: skip

    def _floats_at_once(self) -> int:
        """Floats of one load by a lane: as many as divide the vector, and keep all 32 lanes busy."""
        if self.factors % 4 == 0 and self.factors >= 128:
            return 4
        return 2 if self.factors % 2 == 0 and self.factors >= 64 else 1

    def _entries_at_once(self) -> int:
        """BATCH of gathering.cuh."""
        lane = self.lane_floats
        return 8 if lane <= 4 else 4 if lane <= 8 else 2 if lane <= 16 else 1
