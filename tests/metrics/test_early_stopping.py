import dataclasses

import numpy as np
import pytest
from ranked_lists import Fixed, held_out_of, matrix

from fairmf.errors import InvalidData, InvalidParameter
from fairmf.metrics.early_stopping import EarlyStopping

TARGETS = [{0}] * 10


def model(quality):
    """Hits the target of the first `quality` of ten users."""
    return Fixed([[0] if i < quality else [1] for i in range(10)], 4)


@dataclasses.dataclass
class Progress:
    epoch: int
    model: Fixed
    record: dict
    state: object
    stopped: list
    kept: list

    def stop(self, reason):
        self.stopped.append((self.epoch, reason))

    def keep(self, state):
        self.kept.append(state)


def run(callback, qualities, first_epoch=1):
    """What the fit loop does: call after every epoch, until told to stop."""
    stopped, kept, records = [], [], []
    for epoch, quality in enumerate(qualities, start=first_epoch):
        records.append({"epoch": epoch})
        callback.on_epoch(Progress(epoch, model(quality), records[-1], f"state {epoch}", stopped, kept))
        if stopped:
            break
    return stopped, kept, records


def stopping(metric="recall@1", **settings):
    return EarlyStopping(held_out_of(TARGETS, 4), metric, **settings)


@pytest.mark.parametrize("first_epoch", [0, 1])
def test_stops_after_patience_and_keeps_the_best(first_epoch):
    callback = stopping(patience=2)
    stopped, kept, records = run(callback, [1, 5, 4, 5, 9, 9], first_epoch)
    assert [epoch for epoch, _ in stopped] == [first_epoch + 3]
    assert "recall@1 has not improved for 2 evaluations: best 0.5" in stopped[0][1]
    assert kept == [f"state {first_epoch}", f"state {first_epoch + 1}"]
    assert [r["validation"]["recall@1"] for r in records] == pytest.approx([0.1, 0.5, 0.4, 0.5])
    assert (callback.best_epoch, callback.best_value) == (first_epoch + 1, 0.5)
    assert len(callback.scores) == 4


def test_improvement_starts_the_patience_anew():
    stopped, kept, _ = run(stopping(patience=2), [5, 4, 6, 5, 7, 6])
    assert stopped == []
    assert kept == ["state 1", "state 3", "state 5"]


def test_evaluates_every_so_many_epochs():
    callback = stopping(patience=1, every=3)
    stopped, kept, records = run(callback, [9, 9, 5, 9, 9, 4, 9])
    assert kept == ["state 3"]
    assert [epoch for epoch, _ in stopped] == [6]
    assert ["validation" in r for r in records] == [False, False, True, False, False, True]


def test_gini_is_minimised_unless_told_otherwise():
    # Quality 5 spreads exposure over two items, 10 gives it all to one.
    _, kept, _ = run(stopping("gini@1"), [10, 8, 5])
    assert kept == ["state 1", "state 2", "state 3"]
    _, kept, _ = run(stopping("gini@1", minimise=False), [10, 8, 5])
    assert kept == ["state 1"]
    _, kept, _ = run(stopping("recall@1", minimise=True), [3, 2, 5])
    assert kept == ["state 1", "state 2"]


def test_a_gain_must_exceed_min_change():
    _, kept, _ = run(stopping(min_change=0.25), [1, 3, 4, 5])
    assert kept == ["state 1", "state 3"]


def test_a_second_fit_starts_anew():
    callback = stopping(patience=2)
    run(callback, [9, 8, 7])
    stopped, kept, _ = run(callback, [1, 2])
    assert stopped == []
    assert kept == ["state 1", "state 2"]
    assert callback.best_value == pytest.approx(0.2)


def test_passes_on_what_the_metric_needs():
    callback = stopping("group_tail_share@1", train=matrix([[0], [0, 1]], 4), groups=[1, 2, 2, 1], fairness=3.0)
    progress = Progress(1, model(2), {}, None, [], [])
    callback.on_epoch(progress)
    assert progress.model.calls[0]["fairness"] == 3.0
    assert progress.record["validation"]["group_tail_share@1"] == pytest.approx(0.8)


def test_an_undefined_metric_is_an_error():
    callback = EarlyStopping(held_out_of([set()] * 10, 4), "ndcg@1")
    with pytest.raises(InvalidData, match="ndcg@1 is undefined"):
        run(callback, [1])


@pytest.mark.parametrize(
    "settings", [{"patience": 0}, {"every": 1.5}, {"min_change": -1}, {"min_change": np.nan}, {"metric": "ndcg"}]
)
def test_wrong_settings(settings):
    with pytest.raises(InvalidParameter, match="|".join(settings.keys())):
        stopping(**settings)
