"""Seeded splits by user, splits by interaction, and splits by time."""

import datetime
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmf.data.csr import Rows
from fairmf.data.events import Events
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split_known import split_by_interaction
from fairmf.data.split_methods import split_by_time, split_by_user
from fairmf.errors import InvalidData, InvalidParameter


def random_events(n_users=40, n_items=25, rows=600, seed=0, times=None, weights=False):
    random = np.random.default_rng(seed)
    users = random.integers(n_users, size=rows).astype(np.int32)
    items = np.minimum(random.geometric(0.12, size=rows) - 1, n_items - 1).astype(np.int32)
    user_ids, item_ids = Ids([f"u{k}" for k in range(n_users)]), Ids([f"i{k}" for k in range(n_items)])
    confidences = random.integers(1, 9, size=rows).astype(np.float32) if weights else None
    return Events(users, items, user_ids, item_ids, confidences, times)


def named_pairs(data):
    users = np.repeat(np.arange(data.n_users), np.diff(data.by_user.indptr))
    return set(zip(data.user_ids.values[users], data.item_ids.values[data.by_user.indices], strict=True))


def event_pairs(events):
    return set(zip(events.user_ids.values[events.users], events.item_ids.values[events.items], strict=True))


# -- by user, seeded
# ---------------------------------------------------------------------------------------------


def test_seeded_split_keeps_every_pair_whose_item_is_in_train():
    events = random_events()
    split = split_by_user(events, 6, min_user=0, protocol="seeded", target_share=0.3, random_state=4)
    parts = [split.train]
    for part in (split.validation, split.test):
        assert part.n_users == 6
        assert not part.known_users
        shown, asked = np.diff(part.fold_in.by_user.indptr), np.diff(part.targets.by_user.indptr)
        total = shown + asked
        assert (asked == np.where(total >= 5, np.floor(0.3 * total), 0)).all()
        assert asked.sum() > 0
        parts += [part.fold_in, part.targets]
    found = [named_pairs(part) for part in parts]
    in_train = {item for _, item in found[0]}
    assert set.union(*found) == {(u, i) for u, i in event_pairs(events) if i in in_train}
    assert sum(map(len, found)) == len(set.union(*found))


def test_seeded_split_depends_on_the_seed_only():
    events = random_events()
    targets = [
        named_pairs(split_by_user(events, 6, protocol="seeded", random_state=seed).test.targets) for seed in (1, 1, 2)
    ]
    assert targets[0] == targets[1]
    assert targets[0] != targets[2]


def test_seeded_split_takes_a_matrix_and_names_its_rows_by_position():
    events = random_events().without_duplicates()
    order = np.lexsort((events.items, events.users))
    indptr = np.searchsorted(events.users[order], np.arange(41)).astype(np.int64)
    bare = Interactions(Rows(indptr, events.items[order].copy(), None), 25)
    split = split_by_user(bare, 5, protocol="seeded", min_user=0)
    known = {(u, i) for u, i in zip(events.users.tolist(), events.items.tolist(), strict=True)}
    assert named_pairs(split.train) < known
    assert split.train.n_users + 10 == len(set(events.users.tolist()))


def test_confidences_stay_with_their_pairs_and_ratings_become_binary():
    events = random_events(weights=True).without_duplicates()
    weight = dict(zip(zip(events.users.tolist(), events.items.tolist(), strict=True), events.weights, strict=True))
    split = split_by_user(events, 5, protocol="seeded")
    for data in (split.train, split.test.fold_in):
        users = np.repeat(np.arange(data.n_users), np.diff(data.by_user.indptr))
        for row, item, value in zip(users, data.by_user.indices, data.by_user.weights, strict=True):
            user, name = data.user_ids.values[row], data.item_ids.values[item]
            assert weight[events.user_ids.position(user), events.item_ids.position(name)] == value
    assert split.test.targets.is_binary
    assert split_by_user(events, 5, protocol="seeded", rating_above=2).train.is_binary


# -- by interaction
# ----------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 400), st.floats(0.05, 0.45))
def test_split_by_interaction_divides_every_user(seed, rows, share):
    events = random_events(n_users=20, n_items=30, rows=rows, seed=seed)
    split = split_by_interaction(events, target_share=share, random_state=seed)
    assert split.validation.known_users
    assert split.test.known_users
    found = [named_pairs(data) for data in (split.train, split.validation.targets, split.test.targets)]
    in_train = {item for _, item in found[0]}
    kept = {(u, i) for u, i in event_pairs(events) if i in in_train}
    assert set.union(*found) == kept
    assert sum(map(len, found)) == len(kept)
    for user in {u for u, _ in kept}:
        k = sum(u == user for u, _ in event_pairs(events))
        each = int(np.floor(share * k)) if k >= 5 else 0
        assert sum(u == user for u, _ in found[0]) == k - 2 * each
        assert sum(u == user for u, _ in found[1]) <= each


def test_split_by_interaction_holds_out_both_sets():
    split = split_by_interaction(random_events(), target_share=0.2)
    assert split.validation.targets.nnz > 20
    assert split.test.targets.nnz > 20


@pytest.mark.parametrize("share", [0.5, 0.7, 0.0, -1, "0.2", float("nan")])
def test_split_by_interaction_needs_a_share_below_one_half(share):
    with pytest.raises(InvalidParameter, match="target_share"):
        split_by_interaction(random_events(), target_share=share)


def test_a_split_needs_interactions():
    with pytest.raises(InvalidData, match="Got list"):
        split_by_interaction([1, 2])


# -- by time
# -----------------------------------------------------------------------------------------------------


def naive_time_split(events, start, end):
    rows = [
        (events.user_ids.values[u], events.item_ids.values[i], t)
        for u, i, t in zip(events.users, events.items, events.times, strict=True)
    ]
    train = {(u, i) for u, i, t in rows if t < start}
    known_items = {i for _, i in train}
    known_users = {u for u, _ in train}
    validation = {(u, i) for u, i, t in rows if start <= t < end and i in known_items and u in known_users} - train
    history = {(u, i) for u, i, t in rows if t < end and i in known_items}
    seen = {u for u, _ in history}
    test = {(u, i) for u, i, t in rows if t >= end and i in known_items and u in seen} - history
    return train, validation, history, test


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(60, 300), st.booleans())
def test_split_by_time_against_sets(seed, rows, whole):
    random = np.random.default_rng(seed)
    times = random.integers(0, 100, rows) if whole else random.uniform(0, 100, rows)
    times[:3] = 10, 60, 90  # something in every window
    events = random_events(n_users=15, n_items=20, rows=rows, seed=seed, times=times)
    split = split_by_time(events, validation_from=50, test_from=75)
    parts = split.train, split.validation.targets, split.test.fold_in, split.test.targets
    assert [named_pairs(part) for part in parts] == list(naive_time_split(events, 50, 75))
    assert split.validation.fold_in is split.train
    assert split.validation.known_users
    assert not split.test.known_users
    assert split.test.fold_in.user_ids.values[: split.train.n_users].tolist() == split.train.user_ids.values.tolist()


def test_shares_place_the_cuts_and_no_moment_is_divided():
    times = np.repeat(np.arange(50), 4)
    events = random_events(rows=200, times=times)
    split = split_by_time(events, validation_share=0.2, test_share=0.1)
    expected = naive_time_split(events, 35, 45)
    assert named_pairs(split.train) == expected[0]
    assert named_pairs(split.test.targets) == expected[3]


def test_times_read_from_dates_are_microseconds():
    day = 86_400_000_000
    times = np.arange(200, dtype=np.int64) * day
    events = replace(random_events(rows=200, times=times), time_unit="us")
    wanted = named_pairs(split_by_time(events, validation_from=100 * day, test_from=150 * day).test.targets)
    start = datetime.date(1970, 1, 1) + datetime.timedelta(100)
    end = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(150)
    for pair in ((start, end), (start.isoformat(), np.datetime64("1970-01-01") + np.timedelta64(150, "D"))):
        split = split_by_time(events, validation_from=pair[0], test_from=pair[1])
        assert named_pairs(split.test.targets) == wanted


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("kind", [np.int64, np.float64])
def test_dates_are_understood_in_the_unit_of_the_times(unit, kind):
    seconds = int(np.datetime64("2000-12-01", "s").astype(int)) + np.arange(200) * 86_400
    events = random_events(rows=200, times=(seconds * unit).astype(kind))
    start, end = (int(np.datetime64(day, "s").astype(int)) * unit for day in ("2001-01-01", "2001-04-01"))
    wanted = naive_time_split(events, start, end)
    for first, last in (
        ("2001-01-01", "2001-04-01T00:00:00"),
        ("2001-01-01T02:00:00+02:00", "2001-04-01T00:00:00Z"),
        (datetime.date(2001, 1, 1), datetime.datetime(2001, 4, 1)),
        (np.datetime64("2001-01-01"), np.datetime64("2001-04-01", "ns")),
        # Between two events: the later one is the first after it.
        ("2000-12-31 23:59:59.5", np.datetime64("2001-03-31T00:00:00.001000000")),
    ):
        split = split_by_time(events, validation_from=first, test_from=last)
        parts = split.train, split.validation.targets, split.test.fold_in, split.test.targets
        assert tuple(named_pairs(part) for part in parts) == wanted


def test_times_that_are_not_known_do_not_hide_the_unit():
    times = 978_300_000 + np.arange(200) * 86_400
    times[:5] = 0, -1, 0, 0, 1
    split = split_by_time(random_events(rows=200, times=times), validation_from="2001-02-01", test_from="2001-04-01")
    assert split.test.targets.nnz > 0


@pytest.mark.parametrize(
    "times",
    [np.arange(200), np.arange(200) + 20_010_101, np.where(np.arange(200) % 2, 978_300_000, 978_300_000_000)],
)
def test_a_date_is_refused_where_the_unit_cannot_be_told(times):
    with pytest.raises(InvalidParameter, match=r"'test_from' parameter of split_by_time is a date.*which unit"):
        split_by_time(random_events(rows=200, times=times), test_from="2001-01-01")


@pytest.mark.parametrize(
    ("cuts", "match"),
    [
        ({"validation_from": 80, "test_from": 70}, "must be earlier"),
        ({"validation_from": 0, "test_from": 70}, "no event for train"),
        ({"validation_from": 20, "test_from": 1000}, "no event for test"),
        ({"validation_from": 20.2, "test_from": 20.7}, "no event for validation"),
        ({"validation_from": "soon"}, "'validation_from' parameter of split_by_time must be a number"),
        ({"test_from": True}, "test_from"),
        ({"validation_share": 0.5, "test_share": 0.5}, "nothing to train on"),
        ({"test_share": 0}, "test_share"),
    ],
)
def test_cuts_that_make_no_sense(cuts, match):
    events = random_events(rows=200, times=np.arange(200) // 2)
    with pytest.raises((InvalidData, InvalidParameter), match=match):
        split_by_time(events, **cuts)


def test_split_by_time_needs_times():
    with pytest.raises(InvalidData, match="needs events with times"):
        split_by_time(random_events())
    with pytest.raises(InvalidData, match="no events"):
        split_by_time(random_events(rows=0, times=np.zeros(0)))
    with pytest.raises(InvalidData, match="Got Interactions"):
        split_by_time(Interactions(Rows(np.array([0]), np.zeros(0, np.int32), None), 1))
