import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import peer_library

from fairmf.data.csr import Rows
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.data.synthetic import synthetic
from fairmf.errors import InvalidData, InvalidParameter


def random_data(weights="values", seed=0, shape=(30, 20), **ids):
    rng = np.random.default_rng(seed)
    dense = rng.integers(1, 9, shape) * (rng.random(shape) < 0.2)
    return Interactions.from_csr(sp.csr_array(dense.astype(float)), weights=weights, **ids)


@pytest.mark.parametrize("weights", [None, "values"])
def test_by_item_is_the_transpose_with_sorted_rows(weights):
    data = random_data(weights)
    rows = data.by_item
    values = np.ones(rows.nnz) if rows.weights is None else rows.weights
    other = sp.csr_array((values, rows.indices, rows.indptr), shape=data.shape[::-1])
    assert np.array_equal(other.toarray(), data.to_csr().toarray().T)
    assert (rows.weights is None) == data.is_binary == (weights is None)
    assert (rows.indptr.dtype, rows.indices.dtype) == (np.int64, np.int32)
    for k in range(rows.count):
        assert (np.diff(rows.row(k)[0]) > 0).all()


@pytest.mark.parametrize("side", ["by_user", "by_item"])
@pytest.mark.parametrize("field", ["indptr", "indices", "weights"])
def test_nothing_in_it_can_be_written(side, field):
    array = getattr(getattr(random_data(), side), field)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_shape_and_ids_are_not_to_be_set():
    data = random_data()
    for name in ("nnz", "shape", "n_users", "n_items", "by_user", "user_ids", "item_ids"):
        with pytest.raises(AttributeError):
            setattr(data, name, 1)


def test_rows_given_by_the_caller_stay_writable():
    indices = np.array([0, 1], dtype=np.int32)
    Interactions(Rows(np.array([0, 2]), indices, None), 2)
    assert indices.flags.writeable


def test_rows_outside_the_matrix_are_refused():
    with pytest.raises(InvalidData, match="outside 0 to 1"):
        Interactions(Rows(np.array([0, 2]), np.array([0, 2], dtype=np.int32), None), 2)
    with pytest.raises(InvalidData, match="item_ids holds 1 ids, but the matrix has 2 items"):
        Interactions(Rows(np.array([0, 1]), np.array([0], dtype=np.int32), None), 2, item_ids=Ids("a"))


def test_to_csr_shares_the_indices():
    data = random_data()
    assert np.shares_memory(data.to_csr().indices, data.by_user.indices)
    assert data.to_csr().dtype == np.float32


def test_take_users_in_the_given_order():
    data = random_data(user_ids=list(range(100, 130)))
    some = data.take_users(np.array([7, 2]))
    assert np.array_equal(some.to_csr().toarray(), data.to_csr().toarray()[[7, 2]])
    assert some.user_ids == Ids([107, 102])
    assert some.n_items == data.n_items


def test_sums_are_those_of_the_matrix():
    data = random_data()
    assert np.allclose(data.by_user.sums(), data.to_csr().sum(axis=1))
    assert np.allclose(data.by_item.sums(), data.to_csr().sum(axis=0))


def test_repr():
    assert repr(random_data(None, shape=(3, 2), seed=3)).startswith("Interactions(3 users x 2 items, ")
    assert repr(synthetic(50, 40, 500)) == "Interactions(50 users x 40 items, 500 binary)"


# -- other weights ------------------------------------------------------------------------------------------------


def test_log_weights():
    data = random_data()
    assert np.allclose(data.reweighted("log").by_user.weights, np.log2(1 + data.by_user.weights))
    assert random_data(None).reweighted("log").is_binary
    assert data.reweighted("log").user_ids is data.user_ids


@pytest.mark.parametrize("weights", [None, "values"])
@pytest.mark.parametrize("settings", [{}, {"K1": 1.2, "B": 0.5}, {"B": 0.0}])
def test_bm25_is_its_formula_entry_by_entry(weights, settings):
    data = random_data(weights)
    dense = data.to_csr().toarray().astype(float)
    K1, B = settings.get("K1", 100.0), settings.get("B", 0.8)
    length = dense.sum(axis=0)
    expected = np.zeros_like(dense)
    for i, j in np.argwhere(dense):
        saturated = dense[i, j] * (K1 + 1) / (K1 * (1 - B + B * length[j] / length.mean()) + dense[i, j])
        expected[i, j] = saturated * np.log(data.n_items / (1 + np.count_nonzero(dense[i])))
    assert np.allclose(data.reweighted("bm25", **settings).to_csr().toarray(), expected, rtol=1e-6)


def test_bm25_agrees_with_implicit():
    peer = peer_library("implicit.nearest_neighbours")
    data = random_data()
    expected = peer.bm25_weight(sp.coo_matrix(data.to_csr().T), K1=100, B=0.8).T.toarray()
    assert np.allclose(data.reweighted("bm25").to_csr().toarray(), expected, rtol=1e-5)


def test_bm25_stays_positive_for_a_user_who_has_everything():
    data = Interactions.from_csr(sp.csr_array(np.array([[1, 1, 1], [1, 1, 0], [1, 0, 0]])))
    weighted = data.reweighted("bm25")
    assert weighted.nnz == 6
    assert (weighted.by_user.weights > 0).all()
    assert weighted.to_csr()[0, 0] < weighted.to_csr()[2, 0]


@pytest.mark.parametrize(
    ("how", "more"), [("tfidf", {}), ("bm25", {"K1": 0}), ("bm25", {"B": 2}), ("bm25", {"B": "x"})]
)
def test_unknown_weightings(how, more):
    with pytest.raises(InvalidParameter):
        random_data().reweighted(how, **more)


# -- fingerprint --------------------------------------------------------------------------------------------------


def test_the_fingerprint_changes_with_everything_that_matters():
    data = random_data()
    rows = data.by_user
    names = [f"u{k}" for k in range(30)]
    variants = [
        data,
        random_data(None),
        random_data(seed=1),
        Interactions(rows, 21),
        Interactions(rows, 20, Ids(names)),
        Interactions(rows, 20, Ids([*names[:-1], "x"])),
        Interactions(rows, 20, None, Ids(list(range(20)))),
        Interactions(rows, 20, None, Ids([str(k) for k in range(20)])),
        Interactions(rows._replace(weights=rows.weights + 1), 20),
    ]
    prints = [variant.fingerprint() for variant in variants]
    assert len(set(prints)) == len(variants)
    assert all(len(text) == 64 and int(text, 16) >= 0 for text in prints)


def test_equal_data_have_equal_fingerprints():
    assert random_data().fingerprint() == random_data().fingerprint()
    rows = random_data().by_user
    wide, narrow, unsigned = (np.arange(30, dtype=kind) for kind in (np.int64, np.int32, np.uint16))
    prints = {Interactions(rows, 20, Ids(ids)).fingerprint() for ids in (wide, narrow, unsigned, list(range(30)))}
    assert len(prints) == 1


def test_the_fingerprint_is_the_same_in_every_process():
    rows = Rows(np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32), np.array([1, 2.5], dtype=np.float32))
    data = Interactions(rows, 2, Ids([("a", 1), frozenset(["x", "yy", "zzz"])]), Ids([3, 4]))
    code = (
        "import numpy as np; from fairmf import Ids, Interactions; from fairmf.data.csr import Rows;"
        "rows = Rows(np.array([0, 1, 2]), np.array([1, 0], dtype=np.int32), np.array([1, 2.5], dtype=np.float32));"
        "ids = Ids([('a', 1), frozenset(['x', 'yy', 'zzz'])]);"
        "import sys; sys.stdout.write(Interactions(rows, 2, ids, Ids([3, 4])).fingerprint())"
    )
    for seed in ("1", "2"):
        env = os.environ | {"PYTHONHASHSEED": seed}
        other = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
        assert other.stdout == data.fingerprint()


def test_importing_needs_neither_arrow_nor_narwhals_nor_numba():
    code = (
        "import sys, fairmf.data;"
        "sys.exit(sorted({'pyarrow', 'narwhals', 'numba', 'pandas', 'polars'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
