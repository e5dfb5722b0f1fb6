"""From the blocks of all chunks to a shard, as `Interactions` would have merged, filtered and numbered them.

Rows have positions: the chunk's number and the row's place in the chunk in one integer, so that positions are in the
order of the files. Whoever appears first has the lower number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairmf.engines.parquet.chunks import Block, as_values
from fairmf.engines.parquet.hashing import id_hashes, mix
from fairmf.engines.shards import Shard
from fairmf.interactions import Ids, Rows
from fairmf.interactions.building import rows_from_pairs
from fairmf.interactions.encoding import IdEncoder
from fairmf.interactions.events import count_rows, first_of_pairs, number_by_appearance

_CHUNK_BITS = 32
NEVER = np.iinfo(np.int64).max
_SEEDS = np.array([0x243F6A8885A308D3, 0x13198A2E03707344], dtype=np.uint64)  # digits of pi: nothing up the sleeve


@dataclass(frozen=True)
class Gathered:
    """The rows of a shard in the order of the files, users numbered within the shard."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    weights: NDArray[np.float32] | None
    user_ids: Ids
    firsts: NDArray[np.int64]
    """The position of each user's first row, ascending."""
    positions: NDArray[np.int64] | None
    """Of all rows, where rows may still be left out."""

    def select(self, kept: NDArray[np.bool_]) -> Gathered:
        """Fewer rows; users stay as they are."""
        if kept.all():
            return self
        weights = None if self.weights is None else self.weights[kept]
        positions = None if self.positions is None else self.positions[kept]
        return Gathered(self.users[kept], self.items[kept], weights, self.user_ids, self.firsts, positions)


class Tally(NamedTuple):
    """Rows of a shard: all with a weight, those left by the items' minimum, and those left by the users'."""

    rows: int
    after_items: int
    after_users: int


class Summary(NamedTuple):
    """What the whole needs to know of a shard."""

    nnz: int
    popularity: NDArray[np.float64]
    plain: bool
    """Whether every weight is 1."""
    digest: NDArray[np.uint64]
    """Sums over entries and users: they add up over shards to what does not depend on how users are dealt out."""


def gather(column: str | int, many: bool, keep_positions: bool, *blocks: Block) -> Gathered:
    """All blocks of a shard, in the order of the chunks."""
    encoder = IdEncoder(column, many)
    users, firsts, positions, known = [], [], [], 0
    for number, block in enumerate(blocks):
        codes = encoder.encode(as_values(block.user_ids))
        own = codes[block.users]
        place = block.places.astype(np.int64) + (np.int64(number) << _CHUNK_BITS)
        # Codes are handed out in the order of appearance: a row with the highest code so far is a user's first.
        highest = np.maximum.accumulate(np.concatenate(([known - 1], own)))
        firsts.append(place[own > highest[:-1]])
        known = max(known, int(codes.max(initial=-1)) + 1)
        users.append(own)
        if keep_positions:
            positions.append(place)
    weights = [block.weights for block in blocks if block.weights is not None]
    return Gathered(
        _joined(users, np.int32),
        _joined([block.items for block in blocks], np.int32),
        _joined(weights, np.float32) if weights else None,
        encoder.ids(),
        _joined(firsts, np.int64),
        _joined(positions, np.int64) if keep_positions else None,
    )


def with_weight(gathered: Gathered) -> Gathered:
    """Without rows of weight 0, which are no interactions."""
    return gathered if gathered.weights is None else gathered.select(gathered.weights > 0)


def pairs_of_items(gathered: Gathered, n_items: int) -> NDArray[np.int64]:
    """How many different users of this shard each item has."""
    kept = with_weight(gathered)
    return count_rows(kept.items, _counted(kept, n_items), n_items)


def filtered(
    gathered: Gathered, n_items: int, item_kept: NDArray[np.bool_] | None, min_user: int
) -> tuple[Gathered, Tally]:
    """As `Events.at_least` and `Events.compact`, where which items stay has been found out over all shards."""
    some = with_weight(gathered)
    counted = _counted(some, n_items)
    kept = np.ones(len(some.users), dtype=bool) if item_kept is None else item_kept[some.items]
    after_items = int(np.count_nonzero(kept))
    if min_user > 1:
        kept &= (count_rows(some.users, counted & kept, len(some.user_ids)) >= min_user)[some.users]
    left = some.select(kept)
    tally = Tally(len(some.users), after_items, len(left.users))
    users, order = number_by_appearance(left.users, len(left.user_ids))
    assert left.positions is not None  # kept for this
    first_rows = np.flatnonzero(users > np.maximum.accumulate(np.concatenate(([-1], users)))[:-1])
    compact = Gathered(
        users, left.items, left.weights, left.user_ids.take(order), left.positions[first_rows], left.positions
    )
    return compact, tally


def first_positions(gathered: Gathered, n_items: int) -> NDArray[np.int64]:
    """The position of each item's first row in this shard; NEVER where it has none."""
    firsts = np.full(n_items, NEVER, dtype=np.int64)
    if gathered.positions is not None:
        np.minimum.at(firsts, gathered.items, gathered.positions)
    return firsts


def build(
    gathered: Gathered, numbers: NDArray[np.int64], item_numbers: NDArray[np.int32] | None, n_items: int, count: bool
) -> tuple[Shard, Summary]:
    """Merge repeated pairs. `numbers` are the users' in the whole; `item_numbers` says what items are called now."""
    kept = with_weight(gathered)
    items = kept.items if item_numbers is None else item_numbers[kept.items]
    rows = rows_from_pairs(kept.users, items, (len(numbers), n_items), kept.weights, count=count)
    popularity = np.bincount(rows.indices, rows.weights, n_items).astype(np.float64)
    plain = rows.weights is None or not (rows.weights != 1).any()
    shard = Shard(rows, numbers, kept.user_ids)
    return shard, Summary(rows.nnz, popularity, plain, _digest(shard))


def _digest(shard: Shard) -> NDArray[np.uint64]:
    rows, numbers = shard.rows, shard.users.view(np.uint64)
    entries = (np.repeat(numbers, np.diff(rows.indptr)) << np.uint64(_CHUNK_BITS)) | rows.indices.astype(np.uint64)
    weights = np.ones(1, dtype=np.float32) if rows.weights is None else rows.weights
    names = np.zeros(1, dtype=np.uint64) if shard.user_ids is None else id_hashes(shard.user_ids)
    sums = []
    for seed in _SEEDS:
        of_entries = mix(mix(entries, seed) ^ weights.view(np.uint32).astype(np.uint64), seed)
        of_users = mix(mix(numbers, ~seed) ^ names, ~seed)
        sums += [of_entries.sum(dtype=np.uint64), of_users.sum(dtype=np.uint64)]
    return np.array(sums, dtype=np.uint64)


def plain_rows(rows: Rows) -> Rows:
    """Rows without their weights."""
    return rows._replace(weights=None)


def _counted(gathered: Gathered, n_items: int) -> NDArray[np.bool_]:
    first = first_of_pairs(gathered.users, gathered.items, n_items)
    return np.ones(len(gathered.users), dtype=bool) if first is None else first


def _joined(parts: list, kind: type) -> NDArray:  # type: ignore[type-arg]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)
