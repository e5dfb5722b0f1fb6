"""An epoch's messages without its data: who sends what to whom, by the engine's own tree, and how long that takes.

The formulas of `costs.model` say the same in closed form. What they leave out, such as a link that transfers share,
shows here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from fairmf.engines import tree
from fairmf.engines.costs.model import Rates, Sizes

DRIVER = -1


class Message(NamedTuple):
    """An array of all items that goes from one shard (or the driver) to another."""

    sender: int
    receiver: int
    size: int


class Round(NamedTuple):
    """Messages that go at the same time."""

    purpose: str
    messages: list[Message]


class Replay(NamedTuple):
    """What was sent: bytes and seconds by purpose, and the most bytes that one node's card sent or received."""

    bytes: dict[str, int]
    seconds: dict[str, float]
    busiest: int


def rounds(sizes: Sizes) -> Iterator[Round]:
    """An epoch: V goes out and residuals come back, then directions and what becomes of them, step by step."""
    answers = [sizes.array] * sizes.steps + [8 * sizes.n_items]
    for answer in answers:
        yield Round("broadcast", [Message(DRIVER, shard, sizes.array) for shard in range(sizes.shards)])
        for level in tree.levels(sizes.shards):
            yield Round("reduced", [Message(other, into, answer) for into, other in level])
        yield Round("reduced", [Message(0, DRIVER, answer)])


def replay(sizes: Sizes, rates: Rates, consecutive: bool = True) -> Replay:
    """Send every message of an epoch. A card sends, and receives, one thing after the other.

    `consecutive`: whether neighbouring shards share a node, or are dealt out to the nodes in turn. The driver is on
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
            # What is broadcast lies in the store of a node once, for all of its shards.
            if a != b and not (purpose == "broadcast" and b in has):
                out[a] += size
                into[b] += size
                has.add(b)
        size = messages[0].size
        added = size / rates.additions if messages[0].receiver != DRIVER and purpose == "reduced" else 0.0
        spent[purpose] += max(out + into) / rates.network + 2 * size / rates.store + added
        totals = [total + max(x, y) for total, x, y in zip(totals, out, into, strict=True)]
    return Replay(sent, spent, max(totals))
