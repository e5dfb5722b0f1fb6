"""Estimate what a fit on a cluster costs in bytes, memory and seconds, by formulas and by replaying its messages.

`traffic`, `memory` and `seconds` are formulas of the sizes (docs/scaling.md derives them). `replay` sends every message
of an epoch, without data, along the engine's own tree: it shows what the formulas leave out, such as a network link
that several transfers share. Tests compare the bytes with the engine's own count, and both estimates with each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from fairmf.distributed import remote_arrays

FLOAT = 4  # bytes


@dataclass(frozen=True)
class Sizes:
    """Give the size of a problem, and how it is split.

    `steps` are conjugate gradient steps per row and epoch. `weighted` says whether rows hold weights: those of weighted
    data, and of any data with item_balance or user_balance.
    """

    n_users: int
    n_items: int
    nnz: int
    factors: int
    shards: int
    nodes: int = 1
    steps: int = 1
    weighted: bool = False

    @property
    def array(self) -> int:
        """Return the bytes of an array of all items."""
        return FLOAT * self.n_items * self.factors


@dataclass(frozen=True)
class Rates:
    """Give what a core or a network card does per second. Defaults: measured by `python -m benchmarks ray_costs`."""

    user_rows: float = 1.1e10
    """Flops in the users' rows."""
    item_rows: float = 7e9
    """Flops in the partial sums over items."""
    products: float = 3.3e10
    """Flops of a product with a d x d matrix."""
    normals: float = 2e8
    """Random numbers drawn for the start."""
    additions: float = 8e9
    """Bytes of partial sums added, or of arrays of all items processed in a step."""
    store: float = 6.2e9
    """Bytes into or out of the object store."""
    network: float = 2.5e9
    """Bytes between nodes, each way: 2.5e9 is 20 of the 25 Gbit/s of a common card. Assumed, not measured here."""
    message: float = 0.00044
    """Seconds of a small request to one shard."""


class Traffic(NamedTuple):
    """Count the bytes of one epoch as the engine does: a broadcast counts once for every shard."""

    broadcast: int
    reduced: int
    small: int


def traffic(sizes: Sizes) -> Traffic:
    """Return the bytes of one epoch.

    The driver sends V, and directions for every step. A residual, steps - 1 products and a number per item come back.
    """
    S, d = sizes.shards, sizes.factors
    small = S * 8 * (3 * d * d + 17 * d)
    return Traffic(S * (1 + sizes.steps) * sizes.array, S * (sizes.steps * sizes.array + 8 * sizes.n_items), small)


class Memory(NamedTuple):
    """Give the peak bytes of an epoch."""

    worker: int
    """Of one shard: its rows, its users' factors before and after, and its copies of arrays of all items."""
    store: int
    """Of one node's object store: V, directions and partial sums in transit."""
    driver: int


def memory(sizes: Sizes) -> Memory:
    """Return the peak memory of an epoch.

    Rows take 4 bytes per interaction (8 with weights) and 8 per user. A worker holds its users' factors twice, the
    rotated V and a partial sum.
    """
    per_entry = 8 if sizes.weighted else 4
    rows = (per_entry * sizes.nnz + 8 * sizes.n_users) // sizes.shards
    users = 2 * FLOAT * sizes.factors * sizes.n_users // sizes.shards
    per_node = math.ceil(sizes.shards / sizes.nodes)
    return Memory(rows + users + 2 * sizes.array, (2 + per_node) * sizes.array, 6 * sizes.array)


class Seconds(NamedTuple):
    """Give the seconds of one epoch, part by part."""

    rows: float
    products: float
    driver: float
    broadcast: float
    reduce: float
    messages: float

    @property
    def total(self) -> float:
        """Return the sum: the parts do not overlap."""
        return sum(self)


def seconds(sizes: Sizes, rates: Rates, cores: int = 1) -> Seconds:
    """Return the seconds of one epoch with `cores` for every shard. It assumes that shards are equally large."""
    n, m, d, S, k = sizes.n_users, sizes.n_items, sizes.factors, sizes.shards, sizes.steps
    power = S * cores
    # Per interaction and side: a residual (4 d flops), products (4 d) for all steps but the last, a curvature (2 d).
    flops = (4 + 4 * (k - 1) + 2) * sizes.nnz * d
    rows = flops / (power * rates.user_rows) + flops / (power * rates.item_rows)
    # U is rotated twice and has one Gramian (a triangle); every shard rotates V twice for itself.
    products = (5 * n * d * d / S + 4 * m * d * d) / (cores * rates.products)
    driver = 5 * m * d * d / (cores * rates.products) + (4 + 6 * k) * sizes.array / rates.additions
    return Seconds(
        rows,
        products,
        driver,
        broadcast_seconds(sizes, rates),
        reduce_seconds(sizes, rates),
        calls(sizes) * rates.message,
    )


def calls(sizes: Sizes) -> int:
    """Return the number of requests of an epoch: about eight to every shard, and two for each edge of the tree."""
    return sizes.shards * (8 + 2 * (sizes.steps + 1))


def broadcast_seconds(sizes: Sizes, rates: Rates) -> float:
    """Return the seconds to broadcast: into the store, from the driver to each node in turn, out of each store."""
    each = sizes.array * (2 / rates.store + (sizes.nodes - 1) / rates.network)
    return (1 + sizes.steps) * each


def reduce_seconds(sizes: Sizes, rates: Rates) -> float:
    """Return the seconds to reduce. Neighbours in the tree share a node if possible; above, a level is one transfer."""
    levels, across = len(remote_arrays.levels(sizes.shards)), len(remote_arrays.levels(sizes.nodes))
    added = levels * (2 / rates.store + 1 / rates.additions) + across / rates.network
    return (sizes.steps * sizes.array + 8 * sizes.n_items) * (added + 2 / rates.store)


DRIVER = -1


class Message(NamedTuple):
    """Send an array of all items from one shard (or the driver) to another."""

    sender: int
    receiver: int
    size: int


class Round(NamedTuple):
    """Group messages that are sent at the same time."""

    purpose: str
    messages: list[Message]


class Replay(NamedTuple):
    """Give the bytes and seconds by purpose, and the most bytes that one node's card sent or received."""

    bytes: dict[str, int]
    seconds: dict[str, float]
    busiest: int


def rounds(sizes: Sizes) -> Iterator[Round]:
    """Yield the messages of an epoch: V goes out, residuals come back; then directions and products, step by step."""
    # A residual and steps - 1 products, then one number per item in the last step.
    answers = [sizes.array] * sizes.steps + [8 * sizes.n_items]
    for answer in answers:
        yield Round("broadcast", [Message(DRIVER, shard, sizes.array) for shard in range(sizes.shards)])
        for level in remote_arrays.levels(sizes.shards):
            yield Round("reduced", [Message(other, into, answer) for into, other in level])
        yield Round("reduced", [Message(0, DRIVER, answer)])


def replay(sizes: Sizes, rates: Rates, consecutive: bool = True) -> Replay:
    """Replay every message of an epoch. A network card sends, and receives, one message after the other.

    `consecutive`: whether neighbouring shards share a node, or are assigned to the nodes in turn. The driver is on
    node 0.
    """
    per_node = math.ceil(sizes.shards / sizes.nodes)

    def node(place: int) -> int:
        return 0 if place == DRIVER else place // per_node if consecutive else place % sizes.nodes

    sent, spent = {"broadcast": 0, "reduced": 0}, {"broadcast": 0.0, "reduced": 0.0}
    totals = [0] * sizes.nodes
    for purpose, messages in rounds(sizes):
        out, into = [0] * sizes.nodes, [0] * sizes.nodes
        has = {0}
        for sender, receiver, size in messages:
            sent[purpose] += size
            a, b = node(sender), node(receiver)
            # A node's object store holds a broadcast once, for all of its shards.
            if a != b and not (purpose == "broadcast" and b in has):
                out[a] += size
                into[b] += size
                has.add(b)
        size = messages[0].size
        added = size / rates.additions if messages[0].receiver != DRIVER and purpose == "reduced" else 0.0
        spent[purpose] += max(out + into) / rates.network + 2 * size / rates.store + added
        totals = [total + max(x, y) for total, x, y in zip(totals, out, into, strict=True)]
    return Replay(sent, spent, max(totals))
