"""Test the cost model against the engine's own messages, and at 256 shards against a replay of all messages."""

import math

import numpy as np
import pytest
from conftest import paper_als, slow_values
from in_process import InProcess

from fairmf import FairALS, synthetic
from fairmf.distributed import remote_arrays
from fairmf.distributed.costs import (  # fmt: skip
    DRIVER,
    Memory,
    Rates,
    Sizes,
    broadcast_seconds,
    calls,
    memory,
    reduce_seconds,
    replay,
    rounds,
    seconds,
    traffic,
)

CATALOGUE = 2_000_000  # items, at 128 factors: 1 GB


def sizes(shards, nodes, **more):
    return Sizes(n_users=50_000_000, n_items=CATALOGUE, nnz=10**10, factors=128, shards=shards, nodes=nodes, **more)


class TestAgainstTheEngine:
    """A fit by workers in this process: the same team, tree and count as on a cluster."""

    @pytest.mark.parametrize(
        ("fairness", "steps", "shards"),
        [
            *((*how, shards) for how in ((0.0, 1), (1.0, 1), (30.0, 2)) for shards in (1, 5)),
            *slow_values((0.0, 1, 256), (1.0, 1, 256), (30.0, 2, 256)),
        ],
    )
    def test_bytes_are_those_the_engine_counts(self, shards, fairness, steps):
        n, m, d = 600, 500, 8
        data = synthetic(n_users=n, n_items=m, n_interactions=9000, random_state=1)
        model = FairALS(factors=d, fairness=fairness, epochs=4, engine="ray")
        model.fit(data, cluster=InProcess(shards=shards), objective_every=0)
        known = traffic(Sizes(n, m, data.nnz, d, shards, steps=steps))
        # The first epoch's record has the objective of the start too, for which V is sent once more.
        counted = [record["engine"]["bytes"] for record in model.history.records[1:] if record["effort"] == 0]
        assert counted
        for sent in counted:
            assert sent["broadcast"] == known.broadcast
            assert sent["reduced"] == known.reduced
            assert sent["small"] == pytest.approx(known.small, rel=0.2)

    @pytest.mark.parametrize(("fairness", "steps"), [(1.0, 1), (30.0, 2)])
    def test_about_so_many_questions_are_asked(self, fairness, steps):
        data = synthetic(n_users=600, n_items=500, n_interactions=9000, random_state=1)
        asked = []
        for epochs in (3, 6):
            cluster = InProcess(shards=3)
            model = FairALS(factors=8, fairness=fairness, epochs=epochs, engine="ray")
            model.fit(data, cluster=cluster, objective_every=0, settle=False)
            asked.append(cluster.teams[0].exchanges)
        edges = 2 * (steps + 1)
        assert (asked[1] - asked[0]) / 3 + edges == pytest.approx(
            calls(Sizes(600, 500, data.nnz, 8, 3, steps=steps)) / 3, rel=0.2
        )

    def test_messages_are_those_the_team_sends(self, monkeypatch):
        """Each array that is published, and each partial sum that is handed on, in the engine's order."""
        from fairmf.distributed.team import LocalTeam
        from fairmf.distributed.worker import Worker

        seen = []
        put, take = LocalTeam._put, Worker.take_partial

        def seen_put(team, array):
            seen.append(("broadcast", DRIVER, array.nbytes))
            return put(team, array)

        def seen_take(worker, key):
            partial = take(worker, key)
            seen.append(("reduced", worker.number, partial.nbytes))
            return partial

        monkeypatch.setattr(LocalTeam, "_put", seen_put)
        monkeypatch.setattr(Worker, "take_partial", seen_take)
        data = synthetic(n_users=300, n_items=400, n_interactions=5000, random_state=1)
        model = paper_als(factors=16, epochs=2, engine="ray")
        model.fit(data, cluster=InProcess(shards=7), objective_every=0, settle=False)
        expected = []
        for purpose, messages in rounds(Sizes(300, 400, data.nnz, 16, 7)):
            if purpose == "broadcast":  # put once, read by all
                assert [message.receiver for message in messages] == list(range(7))
                expected.append((purpose, DRIVER, messages[0].size))
            else:
                expected += [(purpose, message.sender, message.size) for message in messages]
        assert seen[-len(expected) :] == expected


class TestReplayAt256Shards:
    @pytest.mark.parametrize("nodes", [1, 16, 32, 256])
    @pytest.mark.parametrize("steps", [1, 3])
    def test_bytes_and_seconds_are_those_of_the_formulas(self, nodes, steps):
        cut, rates = sizes(256, nodes, steps=steps), Rates()
        found, known = replay(cut, rates), traffic(cut)
        assert found.bytes == {"broadcast": known.broadcast, "reduced": known.reduced}
        assert found.seconds["broadcast"] == pytest.approx(broadcast_seconds(cut, rates))
        assert found.seconds["reduced"] == pytest.approx(reduce_seconds(cut, rates))

    @pytest.mark.parametrize(("shards", "nodes"), [(96, 12), (240, 30), (255, 16), (100, 100), (3, 2)])
    def test_within_a_fifth_where_nothing_is_a_power_of_two(self, shards, nodes):
        cut, rates = sizes(shards, nodes), Rates()
        found = replay(cut, rates)
        assert sum(found.seconds.values()) == pytest.approx(
            broadcast_seconds(cut, rates) + reduce_seconds(cut, rates), rel=0.2
        )

    def test_every_shard_is_added_once_and_in_few_levels(self):
        added = [
            message for purpose, messages in rounds(sizes(256, 16)) if purpose == "reduced" for message in messages
        ]
        of_one_sum = added[: len(added) // 2]
        assert sorted(message.sender for message in of_one_sum) == list(range(256))
        assert len(remote_arrays.levels(256)) == 8

    def test_shards_in_turn_on_the_nodes_share_links(self):
        """Why the engine numbers the shards of a node one after the other."""
        cut, rates = sizes(256, 16), Rates()
        side_by_side, in_turn = replay(cut, rates), replay(cut, rates, consecutive=False)
        assert side_by_side.bytes == in_turn.bytes
        assert in_turn.seconds["reduced"] > 5 * side_by_side.seconds["reduced"]

    def test_neither_users_nor_interactions_change_what_is_sent(self):
        small = sizes(256, 16)
        large = Sizes(10 * small.n_users, small.n_items, 10 * small.nnz, small.factors, 256, 16)
        assert traffic(small) == traffic(large)
        assert replay(small, Rates()) == replay(large, Rates())


class TestFormulas:
    def test_memory_of_a_worker_is_that_of_its_arrays(self):
        """Counted from arrays of those shapes."""
        n, m, nnz, d, S = 1200, 300, 9000, 16, 4
        rows = np.zeros(nnz // S, np.int32).nbytes + np.zeros(n // S, np.int64).nbytes
        users, items = np.zeros((n // S, d), np.float32).nbytes, np.zeros((m, d), np.float32).nbytes
        found = memory(Sizes(n, m, nnz, d, S, 2))
        assert found == Memory(rows + 2 * users + 2 * items, 4 * items, 6 * items)
        weighted = memory(Sizes(n, m, nnz, d, S, 2, weighted=True))
        assert weighted.worker - found.worker == np.zeros(nnz // S, np.float32).nbytes

    def test_time_falls_with_shards_until_sending_takes_over(self):
        totals = [seconds(sizes(nodes, nodes), Rates(), 16).total for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256)]
        quickest = totals.index(min(totals))
        assert totals[: quickest + 1] == sorted(totals[: quickest + 1], reverse=True)
        assert totals[quickest:] == sorted(totals[quickest:])
        assert 0 < quickest < 8

    def test_rows_are_shared_and_questions_are_not(self):
        one, four = (seconds(sizes(nodes, nodes), Rates()) for nodes in (1, 4))
        assert one.rows == pytest.approx(4 * four.rows)
        assert four.messages == pytest.approx(4 * one.messages)
        assert one.broadcast < four.broadcast
        assert math.isclose(four.total, sum(four))
