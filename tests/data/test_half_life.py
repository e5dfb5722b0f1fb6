"""Test half-lives: weights by hand, repeated pairs, dates and units, models and splits that remember, recency."""

import datetime

import numpy as np
import pyarrow as pa
import pytest

from fairmf import (
    IALS,
    Events,
    FairALS,
    HalfLife,
    Interactions,
    Split,
    load_model,
    split_by_interaction,
    split_by_item,
    split_by_time,
    split_by_user,
    synthetic_events,
)  # fmt: skip
from fairmf.errors import InvalidData, InvalidParameter

DAY = 86_400
START = 1_600_000_000  # 2020-09-13


def events(users, items, days, weights=None, **more):
    times = START + DAY * np.asarray(days)
    names = [f"u{i}" for i in range(max(users) + 1)], [f"i{j}" for j in range(max(items) + 1)]
    return Events(np.array(users), np.array(items), *names, weights, times, **more)


@pytest.fixture(scope="module")
def many():
    return synthetic_events(n_users=40, n_items=30, n_interactions=550)


def test_weights_halve_with_every_half_life():
    data = Interactions.from_events(events([0, 0, 0, 1], [0, 1, 2, 0], [0, 30, 60, 45]), half_life=30)
    np.testing.assert_allclose(data.to_csr().toarray(), [[0.25, 0.5, 1], [0.5**0.5, 0, 0]], rtol=1e-6)
    assert data.weighting == HalfLife(30)
    assert data.weighting.as_of == "2020-11-12T12:26:40"


def test_a_date_moves_all_weights_and_later_events_count_in_full():
    raw = events([0, 0], [0, 1], [0, 30])
    found = Interactions.from_events(raw, half_life=HalfLife(15, as_of="2020-09-28T12:26:40Z"))
    np.testing.assert_allclose(found.to_csr().toarray(), [[0.5, 1.0]], rtol=1e-6)
    at = HalfLife(15, as_of=datetime.datetime(2020, 9, 28, 12, 26, 40))
    np.testing.assert_array_equal(
        Interactions.from_events(raw, half_life=at).to_csr().toarray(), found.to_csr().toarray()
    )


def test_repeated_pairs_count_at_their_newest_or_add_up():
    raw = events([0, 0, 0], [0, 0, 1], [10, 0, 20], [4.0, 8.0, -2.0])
    likes = raw.select(np.array([0, 1]))
    once = Interactions.from_events(likes, half_life=HalfLife(10, as_of="2020-10-03T12:26:40"))
    np.testing.assert_allclose(once.to_csr().toarray()[0, 0], 0.5, rtol=1e-6)
    counted = Interactions.from_events(likes, weights="sum", half_life=HalfLife(10, as_of="2020-10-03T12:26:40"))
    np.testing.assert_allclose(counted.to_csr().toarray()[0, 0], 0.75, rtol=1e-6)
    weighted = Interactions.from_events(raw, weights="column", half_life=10)
    np.testing.assert_allclose(weighted.to_csr().toarray(), [[4 / 2 + 8 / 4, -2]], rtol=1e-6)


@pytest.mark.parametrize(("unit", "scale"), [("s", 1), ("ms", 1000), ("us", 10**6), ("ns", 10**9)])
def test_every_unit_of_times_gives_the_same_weights(unit, scale):
    raw = events([0, 0], [0, 1], [0, 7])
    other = Events(raw.users, raw.items, raw.user_ids, raw.item_ids, None, raw.times * scale, unit)
    np.testing.assert_allclose(Interactions.from_events(other, half_life=7).to_csr().toarray(), [[0.5, 1]], rtol=1e-6)


def test_very_old_events_stay_interactions():
    data = Interactions.from_events(events([0, 0], [0, 1], [0, 10_000]), half_life=1)
    assert data.nnz == 2
    assert 0 < data.by_user.weights[0] < 1e-30


def test_readers_take_a_half_life(tmp_path):
    table = pa.table({"user": ["a", "a"], "item": ["x", "y"], "day": ["2024-01-01", "2024-01-11"]})
    for data in (
        Interactions.from_frame(table, time="day", half_life=10),
        Interactions.from_frame(table.rename_columns(["user", "item", "time"]), half_life=10),
    ):
        np.testing.assert_allclose(data.to_csr().toarray(), [[0.5, 1]], rtol=1e-6)
    (tmp_path / "a.csv").write_text("user,item,day\na,x,2024-01-01\na,y,2024-01-11\n")
    data = Interactions.from_csv(tmp_path / "a.csv", time="day", half_life=10)
    np.testing.assert_allclose(data.to_csr().toarray(), [[0.5, 1]], rtol=1e-6)


@pytest.mark.parametrize("kind", [IALS, FairALS])
def test_a_model_remembers_and_gives_training_users_their_vectors_again(many, kind, tmp_path):
    data = Interactions.from_events(many, half_life=60)
    model = kind(factors=4, epochs=3).fit(data, progress=False)
    model.save(tmp_path / "model.fairmf")
    loaded = load_model(tmp_path / "model.fairmf")
    own = loaded.fitted.weighting if kind is IALS else loaded.fitted.weighting.inner
    assert (own.days, own.as_of) == (60, data.weighting.as_of)
    np.testing.assert_allclose(loaded.fold_in(many), model.user_factors, atol=1e-4)  # the events, with their times
    undated = Events(many.users, many.items, many.user_ids, many.item_ids)
    assert np.abs(loaded.fold_in(undated) - model.user_factors).max() > 1e-3
    some = many.select(many.users == 3)
    before = loaded.user_factors[3].copy()
    loaded.partial_fit_users([many.user_ids.values[3]], some.compact())
    np.testing.assert_allclose(loaded.user_factors[3], before, atol=1e-4)


def test_newer_histories_decay_from_their_own_newest_event(many):
    model = IALS(factors=4, epochs=2, backend="reference").fit(
        Interactions.from_events(many, half_life=60), progress=False
    )
    later = Events(many.users, many.items, many.user_ids, many.item_ids, None, many.times + 500 * DAY, many.time_unit)
    np.testing.assert_allclose(model.fold_in(later), model.fold_in(many), atol=1e-9)


def test_another_half_life_is_refused(many):
    model = IALS(factors=2, epochs=1).fit(Interactions.from_events(many, half_life=60), progress=False)
    with pytest.raises(InvalidData, match="weighted by 'half_life'"):
        model.fold_in(Interactions.from_events(many, half_life=30))
    plain = IALS(factors=2, epochs=1).fit(Interactions.from_events(many), progress=False)
    assert plain.fold_in(many).shape == (len(many.user_ids), 2)


def test_splits_keep_the_half_life_and_store_it(many, tmp_path):
    decayed = HalfLife(60).decayed(many)
    for split in (
        split_by_time(decayed),
        split_by_interaction(decayed),
        split_by_item(Interactions.from_events(many, half_life=60)),
        split_by_user(Interactions.from_events(many, half_life=60), 5, protocol="seeded"),
    ):
        split.save(tmp_path / split.method)
        loaded = Split.load(tmp_path / split.method)
        for part in (loaded.train, loaded.test.fold_in):
            assert part.weighting == HalfLife(60)
            assert part.weighting.as_of == decayed.weighting.as_of
            assert part.by_user.weights.max() <= 1
        assert loaded.test.targets.is_binary


def test_recency_holds_out_the_newest(many):
    split = split_by_interaction(many, target_share=0.2, recency=True)
    raw = many.without_duplicates()
    for user in range(len(many.user_ids)):
        rows = np.flatnonzero(raw.users == user)
        order = rows[np.lexsort((rows, raw.times[rows]))]
        each = int(0.2 * len(rows)) if len(rows) >= 5 else 0
        expected = [set(order[len(order) - each :]), set(order[len(order) - 2 * each : len(order) - each])]
        place = split.test.targets.user_ids.position(many.user_ids.values[user])
        for part, wanted in zip((split.test, split.validation), expected, strict=True):
            found = {part.targets.item_ids.values[j] for j in part.targets.by_user.row(place)[0]}
            names = {many.item_ids.values[raw.items[row]] for row in wanted}
            assert found == names & set(split.train.item_ids.values.tolist())


def test_bad_half_lives_are_refused(many):
    for days in (0, -1, float("nan"), "soon"):
        with pytest.raises(InvalidParameter, match="'days' parameter of HalfLife"):
            HalfLife(days)
    with pytest.raises(InvalidParameter, match="must be a date"):
        HalfLife(3, as_of="yesterday")
    undated = Events(many.users, many.items, many.user_ids, many.item_ids)
    with pytest.raises(InvalidData, match="needs events with times"):
        Interactions.from_events(undated, half_life=3)
    with pytest.raises(InvalidData, match="recency=True needs events with times"):
        split_by_interaction(undated, recency=True)
    small = Events(many.users, many.items, many.user_ids, many.item_ids, None, np.arange(len(many)))
    with pytest.raises(InvalidData, match="not clear which unit"):
        Interactions.from_events(small, half_life=3)
    with pytest.raises(InvalidData, match="decayed already"):
        HalfLife(3).decayed(HalfLife(3).decayed(many))


def test_a_damaged_half_life_in_a_file_is_found():
    from fairmf.data import stored_arrays
    from fairmf.io.strict_json import Malformed

    for stored in ({"how": "half_life", "days": -1.0, "as_of": None}, {"how": "half_life", "days": 3.0, "as_of": "x"}):
        with pytest.raises(Malformed, match="lost weight with time"):
            stored_arrays.weighting_from_arrays({"weighting": stored}, 3, {})
