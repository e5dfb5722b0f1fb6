"""Lists for all users as batches, as an Arrow table and as a Parquet file."""

import errno
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import random_rows
from full_disk import fail_after

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.errors import CannotWrite, InvalidData, InvalidParameter
from fairmf.models import batches
from fairmf.models.als import IALS

N_USERS, N_ITEMS = 30, 20
ROWS = random_rows(N_USERS, N_ITEMS)


def fitted(user_ids=None, item_ids=None):
    ids = [None if x is None else Ids(x) for x in (user_ids, item_ids)]
    return IALS(factors=4, epochs=2).fit(Interactions(ROWS, N_ITEMS, *ids))


TEXT = [f"u{i}" for i in range(N_USERS)]
NUMBERS = np.arange(500, 500 + N_ITEMS)


def by_hand(model, N, **options):
    """The long table, slot by slot, out of `recommend`."""
    rows = []
    users = model.fitted.user_ids.values.tolist() if model.fitted.user_ids is not None else range(N_USERS)
    for user in users:
        ids, scores = model.recommend(user, N=N, **options)
        for slot, (item, score) in enumerate(zip(ids.tolist(), scores.tolist(), strict=True)):
            if item is not None and item != -1:
                rows.append({"user": user, "item": item, "score": None if score != score else score, "rank": slot + 1})
    return rows


@pytest.mark.parametrize(
    ("user_ids", "item_ids", "types"),
    [
        (None, None, (pa.int64(), pa.int64())),
        (TEXT, NUMBERS, (pa.string(), pa.int64())),
        (np.arange(N_USERS, dtype=np.uint64) + 2**63, [f"i{j}" for j in range(N_ITEMS)], (pa.uint64(), pa.string())),
    ],
)
def test_the_table_holds_every_filled_slot_once(user_ids, item_ids, types):
    model = fitted(user_ids, item_ids)
    table = model.recommend_table(N=18, batch_size=7)  # 18: some users run out of items
    assert table.schema.names == ["user", "item", "score", "rank"]
    assert table.schema.types == [*types, pa.float32(), pa.int32()]
    assert table.to_pylist() == by_hand(model, 18)
    without = int((np.diff(ROWS.indptr) == 0).sum())
    assert table["score"].null_count == 18 * without > 0


def test_the_file_is_the_table(tmp_path):
    model = fitted(TEXT, NUMBERS)
    path = tmp_path / "lists.parquet"
    written = model.recommend_to_parquet(path, N=5, batch_size=8, progress=False)
    file = pq.ParquetFile(path)
    assert file.num_row_groups == 4
    assert file.read().equals(model.recommend_table(N=5))
    assert written == file.metadata.num_rows
    assert [p.name for p in tmp_path.iterdir()] == ["lists.parquet"]


def test_some_users_in_their_order_and_with_options():
    model = fitted(TEXT, NUMBERS)
    options = {"filter_items": [500, 501], "fairness": 2.0}
    parts = list(model.recommend_batches(["u9", "u3", "u4"], N=4, batch_size=2, **options))
    assert [part.users.tolist() for part in parts] == [["u9", "u3"], ["u4"]]
    ids, scores = model.recommend(["u9", "u3", "u4"], N=4, **options)
    np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), ids)
    np.testing.assert_array_equal(np.concatenate([part.scores for part in parts]), scores)
    assert set(model.recommend_table(["u9"], N=4)["user"].to_pylist()) == {"u9"}


def test_new_users_in_batches():
    model = fitted()
    history = Interactions(random_rows(9, N_ITEMS, seed=3), N_ITEMS)
    options = {"user_items": history, "recalculate_user": True}
    parts = list(model.recommend_batches(np.arange(100, 109), N=4, batch_size=4, **options))
    ids, _ = model.recommend(np.arange(100, 109), N=4, **options)
    np.testing.assert_array_equal(np.concatenate([part.ids for part in parts]), ids)


def test_nobody_is_an_empty_table(tmp_path):
    model = fitted(TEXT)
    assert list(model.recommend_batches([], N=3)) == []
    assert model.recommend_table(np.array([], dtype=object), N=3).num_rows == 0
    assert model.recommend_to_parquet(tmp_path / "none.parquet", np.array([], dtype=object)) == 0
    assert pq.read_table(tmp_path / "none.parquet").num_rows == 0


def test_a_failure_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    model, path = fitted(), tmp_path / "lists.parquet"
    path.write_bytes(b"old")
    real, calls = batches.answer, []

    def fails_later(*arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(batches, "answer", fails_later)
    with pytest.raises(KeyboardInterrupt):
        model.recommend_to_parquet(path, batch_size=4)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["lists.parquet"]


def test_a_full_disk_leaves_the_old_file_and_no_rest(tmp_path, monkeypatch):
    model, path = fitted(), tmp_path / "lists.parquet"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        fail_after(patch, 1000, OSError(errno.ENOSPC, "No space left on device"))
        with pytest.raises(CannotWrite, match=r"lists\.parquet cannot be written: No space left on device"):
            model.recommend_to_parquet(path, batch_size=4)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["lists.parquet"]


def test_the_file_has_the_rights_of_a_new_file(tmp_path):
    fitted().recommend_to_parquet(tmp_path / "lists.parquet")
    (tmp_path / "plain").write_text("")
    assert (tmp_path / "lists.parquet").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_progress_is_shown_when_asked_for(capsys):
    list(fitted().recommend_batches(N=2, batch_size=10, progress=True))
    assert "3/3" in capsys.readouterr().err
    list(fitted().recommend_batches(N=2, progress=False))
    assert capsys.readouterr().err == ""


def test_errors_come_at_the_call_not_at_the_first_batch(tmp_path):
    model = fitted(TEXT)
    for call in (
        lambda **o: model.recommend_batches(**o),
        lambda **o: model.recommend_table(**o),
        lambda **o: model.recommend_to_parquet(tmp_path / "x", **o),
    ):
        with pytest.raises(TypeError, match="no option 'speed'; there are user_items"):
            call(speed=1)
        with pytest.raises(InvalidParameter, match="'batch_size' parameter of recommend must be an integer >= 1"):
            call(batch_size=0)
        with pytest.raises(InvalidData, match="the first is 'nobody'"):
            call(users=["nobody"])
        with pytest.raises(InvalidParameter, match="by must be"):
            call(by="column")
    with pytest.raises(InvalidData, match="no folder"):
        model.recommend_to_parquet(tmp_path / "missing" / "x")


def test_ids_that_no_column_can_hold():
    model = fitted(["a", 1, *TEXT[2:]])
    with pytest.raises(InvalidData, match=r"no column type for these user ids.*by='row'"):
        model.recommend_table(N=2)
    assert model.recommend_table(N=2, by="row")["user"].to_pylist()[:2] == [0, 0]


def test_memory_holds_one_batch_not_all_users():
    """Ten times the users, the same peak: lists of 20,000 users x 50 would take 8 MB."""
    peaks = []
    for n in (2_000, 20_000):
        model = IALS(factors=4, epochs=1).fit(synthetic(n, 300, 10 * n))
        sum(len(part.users) for part in model.recommend_batches(N=50, batch_size=500))
        tracemalloc.start()
        assert sum(len(part.users) for part in model.recommend_batches(N=50, batch_size=500)) == n
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 2_000_000
