"""Requests through a nearest-neighbour index, at any evenness: exact scores, found candidates, filters."""

import dataclasses

import numpy as np
import pytest

from fairmf import HistoryRequest, Level, synthetic
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter
from fairmf.models.als import FairALS
from fairmf.models.ann_requests import AnnRequests, level_groups, measured, recall
from fairmf.ranking.ann import AnnIndex
from fairmf.ranking.level_groups import LevelGroups

pytest.importorskip("faiss")
DATA = synthetic(400, 600, 12_000)
ITEMS = DATA.item_ids.values


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=12, epochs=3).fit(DATA, progress=False)


@pytest.fixture(scope="module")
def groups(model):
    return level_groups(model, 40)


def histories(count, seed=0):
    rng = np.random.default_rng(seed)
    return [ITEMS[rng.choice(len(ITEMS), 4, replace=False)].tolist() for _ in range(count)]


@pytest.mark.parametrize("evenness", [None, 0.1, 0.4, 0.8])
@pytest.mark.parametrize("share", [1.0, 0.999])  # every item, and every group but at most one
def test_looking_at_everything_gives_the_exact_lists(model, groups, evenness, share):
    chosen = groups if share == 1.0 else one_empty_group(groups)
    served = AnnRequests(model, chosen, share=share * (chosen.n_groups - 1) / chosen.n_groups if share < 1 else 1.0)
    requests = [HistoryRequest(own, N=15, evenness=evenness, exclude=ITEMS[:50].tolist()) for own in histories(20)]
    for ours, theirs in zip(served.recommend_histories(requests), model.recommend_histories(requests), strict=True):
        assert ours.ids.tolist() == theirs.ids.tolist()
        assert ours.scores.tobytes() == theirs.scores.tobytes()


def one_empty_group(groups):
    """The same groups and an empty one: looking into all but one of them looks at every item."""
    arrays = {name: np.array(value) for name, value in groups.arrays().items()}
    for name in ("levels_centres", "levels_facts"):
        arrays[name] = np.concatenate([arrays[name], arrays[name][:1]])
    return LevelGroups.taken(arrays, DATA.n_items, 12)


def overlap(model, served, evenness):
    requests = [HistoryRequest(own, N=10, evenness=evenness) for own in histories(40, 1)]
    pairs = zip(served.recommend_histories(requests), model.recommend_histories(requests), strict=True)
    return np.mean([len(set(ours.ids) & set(theirs.ids)) / 10 for ours, theirs in pairs])


@pytest.mark.parametrize("evenness", [0.0, 0.3, 0.6, 0.8, 1.0])
def test_a_part_of_the_groups_finds_most_items_at_every_level(model, groups, evenness):
    found = overlap(model, AnnRequests(model, groups, share=0.25), evenness)
    assert found > 0.8
    rng = np.random.default_rng(0)
    blind = dataclasses.replace(groups, centres=rng.permutation(groups.centres), facts=rng.permutation(groups.facts))
    assert overlap(model, AnnRequests(model, blind, share=0.25), evenness) < found - 0.3


def test_estimates_and_groups_by_hand(model, groups):
    """The means of the groups, and which groups are chosen, by a loop over groups in float64."""
    fitted, dial = model.fitted, model.fitted.item_dial
    users, items = model.user_factors[:6].astype(float), model.item_factors.astype(float)
    spread, logs = dial.floored_spread, np.log(np.maximum(dial.counts, 1)) - np.log(np.maximum(dial.counts, 1)).mean()
    cov = np.cov(model.user_factors.astype(float).T, bias=True)
    level = Level(flatten=0.6, discount=0.3)
    strength = fitted.serving.strength(*level.on_items)
    estimates = np.full((6, 40), -np.inf)
    for q in range(40):
        own = groups.assignment == q
        if not own.any():
            continue
        centre = (items[own] / spread[own, None]).mean(axis=0)
        deviations = items[own] / spread[own, None] - centre
        residual = np.sqrt(np.einsum("ij,jk,ik->i", deviations, cov, deviations).mean())
        for i, user in enumerate(users):
            length = np.sqrt(user @ np.linalg.solve(cov, user))
            reach = residual * length * np.sqrt(2 * np.log(max(own.sum(), 2)) / 12)
            size = np.exp(0.4 * np.log(spread[own]).mean())
            estimates[i, q] = size * (user @ centre + reach) - strength[1] * logs[own].mean()
    expected = np.argsort(-estimates, axis=1)[:, :8]
    chosen = groups.choose(users, np.array([strength[:3]] * 6), np.full(6, 8))
    assert np.mean([len(np.intersect1d(a, b)) for a, b in zip(expected, chosen, strict=True)]) >= 7.5
    # Each user has its own number of groups, and gets what it would get alone.
    counts = np.array([1, 8, 3, 40, 2, 5])
    mixed = groups.choose(users, np.array([strength[:3]] * 6), counts)
    for i, count in enumerate(counts):
        alone = groups.choose(users[i : i + 1], np.array([strength[:3]]), counts[i : i + 1])[0]
        assert set(mixed[i, :count]) == set(alone)
        assert len(set(alone)) == count
        assert (mixed[i, count:] == -1).all()


def test_the_effort_of_each_level_is_measured(model, groups):
    served = AnnRequests(model, groups)
    assert groups.effort.shape == (9, 4)
    assert groups.share(tuple(groups.effort[2, :3])) == groups.effort[2, 3]
    between = tuple((groups.effort[2, :3] + groups.effort[3, :3]) / 2)
    assert groups.share(between) == groups.effort[2:4, 3].max()
    assert min(served.check().values()) >= 0.9
    for g, h, t, share in groups.effort:
        if share < 1:
            assert recall(AnnRequests(model, groups, share=float(share)), model.user_factors[:100],
                          Level(None, g, h, t), 20) > 0.85  # fmt: skip


def test_groups_of_another_model_are_noticed_and_more_are_looked_into(model, groups, caplog):
    rng = np.random.default_rng(1)
    stale = LevelGroups(rng.permutation(groups.assignment), groups.centres, groups.facts, groups.metric,
                        np.array([[0, 0, 0, 1 / 32]], dtype=np.float32))  # fmt: skip
    served = AnnRequests(model, stale)
    assert min(served.check().values()) < 0.7
    assert "of another model" in caplog.text
    assert overlap(model, served, 0.7) > 0.9
    assert (measured(model, stale).effort[:, 3] > 1 / 32).all()


def test_prices_bring_items_into_play(model, groups):
    """An item whose price is high is found, wherever its group is."""
    served, prices = AnnRequests(model, groups, share=0.05), np.zeros(DATA.n_items)
    prices[17] = 100.0
    for own in histories(10):
        (answer,) = served.recommend_histories([HistoryRequest(own, N=3, filter_liked=False)], prices=prices)
        assert answer.ids[0] == ITEMS[17]


def test_lists_are_filled_where_the_groups_hold_too_few_items(model, groups):
    served = AnnRequests(model, groups, share=1 / 40)
    request = HistoryRequest(histories(1)[0], N=400, evenness=0.5)
    ours, theirs = served.recommend_histories([request])[0], model.recommend_histories([request])[0]
    assert ours.ids.tolist() == theirs.ids.tolist()


def test_groups_are_stored_with_the_index(model, groups, tmp_path):
    index = model.to_ann(groups=20, levels=True)
    index.save(tmp_path / "items.ann")
    stored = AnnIndex.load(tmp_path / "items.ann").levels
    for name, array in index.levels.arrays().items():
        assert stored.arrays()[name].tobytes() == array.tobytes(), name
    model.to_ann(groups=20).save(tmp_path / "plain.ann")
    assert AnnIndex.load(tmp_path / "plain.ann").levels is None


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("assignment", lambda a: a + 40),
        ("assignment", lambda a: a[1:]),
        ("centres", lambda a: a * np.float32(np.nan)),
        ("facts", lambda a: a[:, :3]),
        ("metric", lambda a: a.astype(np.float64)),
        ("effort", lambda a: -a),
    ],
)
def test_groups_that_do_not_fit_are_refused(model, groups, tmp_path, name, change):
    index = model.to_ann(groups=20)
    arrays = {k: np.array(v) for k, v in groups.arrays().items()}
    arrays[f"levels_{name}"] = change(arrays[f"levels_{name}"])
    index.levels = LevelGroups(*(arrays[f"levels_{k}"] for k in ("assignment", "centres", "facts", "metric", "effort")))
    index.save(tmp_path / "items.ann")
    with pytest.raises(BrokenFile):
        AnnIndex.load(tmp_path / "items.ann")


def test_candidates_popular_items_prices_and_errors(model, groups):
    served = AnnRequests(model, groups, share=1.0)
    own = histories(1)[0]
    requests = [
        HistoryRequest(own, N=5, candidates=ITEMS[:40].tolist()),
        HistoryRequest(N=5, evenness=0.3),
        HistoryRequest(["?"]),
        HistoryRequest(user=DATA.user_ids.values[3], N=5),
    ]
    prices = np.random.default_rng(0).normal(0, 0.05, DATA.n_items)
    ours = served.recommend_histories(requests, errors="return", prices=prices)
    theirs = model.recommend_histories(requests, errors="return", prices=prices)
    for k in (0, 1, 3):
        assert ours[k].ids.tolist() == theirs[k].ids.tolist()
    assert type(ours[2]) is type(theirs[2])
    assert served.recommend_for(own, N=3)[0].tolist() == model.recommend_for(own, N=3)[0].tolist()


def test_what_does_not_fit(model, groups):
    other = FairALS(factors=12, epochs=1).fit(synthetic(50, 60, 600), progress=False)
    with pytest.raises(InvalidData, match="other items"):
        AnnRequests(other, model.to_ann(groups=20))
    for share in (0.0, 1.5):
        with pytest.raises(InvalidParameter):
            AnnRequests(model, groups, share=share)
    exact = FairALS(factors=4, epochs=1, backend="reference", solver="cholesky").fit(DATA, progress=False)
    with pytest.raises(InvalidData, match="cpu"):
        AnnRequests(exact, exact.to_ann())
