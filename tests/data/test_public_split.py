"""The public protocol, against files made by an independent transcription of the protocol (docs/splitting.md)."""

from itertools import chain

import numpy as np
import pandas as pd
import pytest
from naive.public_split import CASES, EXPECTED, HELDOUT, public_split

from fairmf.data.csr import Rows
from fairmf.data.events import Events
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.split import Split
from fairmf.data.split_methods import split_by_user
from fairmf.errors import InvalidData, InvalidParameter


def read_ratings() -> pd.DataFrame:
    return pd.read_csv(EXPECTED / "ratings.csv")


def events_of(ratings: pd.DataFrame) -> Events:
    users, user_ids = pd.factorize(ratings["user"])
    items, item_ids = pd.factorize(ratings["item"])
    codes = users.astype(np.int32), items.astype(np.int32)
    return Events(*codes, Ids(user_ids.tolist()), Ids(item_ids.tolist()), ratings["rating"].to_numpy(np.float32), None)


def pairs(data: Interactions) -> set[tuple[int, int]]:
    users = np.repeat(np.arange(data.n_users), np.diff(data.by_user.indptr))
    return set(zip(users.tolist(), data.by_user.indices.tolist(), strict=True))


def as_tables(split: Split) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    n_train, n_held = split.train.n_users, split.validation.n_users
    matrices = {
        "train": (0, split.train),
        "validation_tr": (n_train, split.validation.fold_in),
        "validation_te": (n_train, split.validation.targets),
        "test_tr": (n_train + n_held, split.test.fold_in),
        "test_te": (n_train + n_held, split.test.targets),
    }
    rows = [(part, first + u, i) for part, (first, data) in matrices.items() for u, i in sorted(pairs(data))]
    users = [part.user_ids.values.tolist() for part in (split.train, split.validation.fold_in, split.test.fold_in)]
    items = split.train.item_ids.values.tolist()
    return (
        pd.DataFrame(rows, columns=["part", "uid", "sid"]).sort_values(["part", "uid", "sid"], ignore_index=True),
        pd.DataFrame({"uid": range(sum(map(len, users))), "user": list(chain.from_iterable(users))}),
        pd.DataFrame({"sid": range(len(items)), "item": items}),
    )


def expected(case: str) -> list[pd.DataFrame]:
    return [pd.read_csv(EXPECTED / f"{case}_{kind}.csv") for kind in ("interactions", "users", "items")]


def assert_same(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        assert a.columns.tolist() == b.columns.tolist()
        assert a.to_numpy().tolist() == b.to_numpy().tolist()


@pytest.mark.parametrize("case", CASES)
def test_the_transcription_makes_the_expected_files(case):
    state = np.random.get_state()
    tables = public_split(read_ratings(), HELDOUT, 5, CASES[case])
    np.random.set_state(state)
    assert_same(tables, expected(case))


@pytest.mark.parametrize("case", CASES)
def test_public_split_equals_the_expected_files(case):
    split = split_by_user(events_of(read_ratings()), HELDOUT, min_user=5, min_item=CASES[case], rating_above=3.5)
    assert_same(as_tables(split), expected(case))
    assert split.train.is_binary
    assert split.test.fold_in.is_binary


@pytest.mark.parametrize("rename", [lambda u: f"user-{u}", lambda u: -u, lambda u: u * 10**15])
def test_public_split_equals_the_transcription_for_other_ids_and_row_orders(rename):
    ratings = read_ratings().sample(frac=1, random_state=5)
    ratings["user"] = ratings["user"].map(rename)
    split = split_by_user(events_of(ratings), 10, min_user=4, min_item=2, rating_above=3.5)
    state = np.random.get_state()
    tables = public_split(ratings, 10, 4, 2)
    np.random.set_state(state)
    assert_same(as_tables(split), tables)


def test_the_crafted_ratings_have_every_special_case():
    interactions, users, items = expected("all_items")
    ratings = read_ratings()
    kept = ratings[ratings["rating"] > 3.5]
    held_out = users["uid"] >= len(users) - 2 * HELDOUT
    of_user = interactions.groupby("uid").size().reindex(users["uid"], fill_value=0)
    assert len(users) < kept["user"].nunique()  # users dropped by the filter
    assert set(kept["item"]) - set(items["item"])  # items unseen in train
    assert ((of_user < 5) & (of_user > 0) & held_out.to_numpy()).any()  # too few to be scored
    assert ((of_user == 0) & held_out.to_numpy()).any()  # nothing left at all


def test_users_with_fewer_than_five_items_keep_all_and_users_without_any_keep_their_row():
    split = split_by_user(events_of(read_ratings()), HELDOUT, rating_above=3.5)
    few = 0
    for part in (split.validation, split.test):
        shown, asked = np.diff(part.fold_in.by_user.indptr), np.diff(part.targets.by_user.indptr)
        total = shown + asked
        assert (asked == np.where(total >= 5, (0.2 * total).astype(int), 0)).all()
        few += np.count_nonzero(total < 5)
        assert part.n_users == HELDOUT
    assert few >= 3


def test_the_global_generator_is_untouched():
    np.random.seed(1)
    before = np.random.get_state()
    split_by_user(events_of(read_ratings()), HELDOUT, rating_above=3.5)
    after = np.random.get_state()
    assert before[2] == after[2]
    assert np.array_equal(before[1], after[1])


def test_of_a_repeated_pair_the_first_row_counts():
    ratings = read_ratings()
    repeated = pd.concat([ratings, ratings.sample(60, random_state=1)])
    once = split_by_user(events_of(ratings), HELDOUT, rating_above=3.5)
    twice = split_by_user(events_of(repeated), HELDOUT, rating_above=3.5)
    assert_same(as_tables(twice), as_tables(once))


def test_ids_that_cannot_be_sorted():
    ratings = read_ratings()
    ratings["user"] = [u if u % 2 else str(u) for u in ratings["user"]]
    with pytest.raises(InvalidData, match="int, str"):
        split_by_user(events_of(ratings), HELDOUT)


def test_a_matrix_has_no_row_order():
    data = Interactions(Rows(np.array([0, 1]), np.array([0], dtype=np.int32), None), 1)
    with pytest.raises(InvalidData, match="order of the file's rows"):
        split_by_user(data, 1)


def test_heldout_too_large():
    with pytest.raises(InvalidData, match=r"Holding out 30 users.*47 users remain.*lower heldout"):
        split_by_user(events_of(read_ratings()), 30, rating_above=3.5)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"heldout": 0}, "'heldout' parameter of split_by_user must be an integer >= 1. Got 0"),
        ({"heldout": 2.5}, "heldout"),
        ({"protocol": "private"}, "'public' or 'seeded'"),
        ({"target_share": 1.0, "protocol": "seeded"}, "target_share"),
        ({"target_share": 0.3}, "fixes target_share"),
        ({"random_state": 3}, "fixes target_share and the seed"),
        ({"min_user": -1}, "min_user"),
        ({"min_item": "2"}, "min_item"),
    ],
)
def test_wrong_settings(settings, match):
    with pytest.raises(InvalidParameter, match=match):
        split_by_user(events_of(read_ratings()), **({"heldout": HELDOUT} | settings))


def test_a_rating_threshold_needs_ratings():
    events = events_of(read_ratings())
    bare = Events(events.users, events.items, events.user_ids, events.item_ids, None, None)
    with pytest.raises(InvalidData, match="no weights"):
        split_by_user(bare, HELDOUT, rating_above=3.5)
