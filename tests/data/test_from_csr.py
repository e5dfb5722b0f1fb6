import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import InvalidData, InvalidParameter

DENSE = np.array([[0, 2, 0, 1], [0, 0, 0, 0], [3, 0, 0.5, 0]])


def messy(kind=sp.csr_array, index=np.int32):
    """DENSE with unsorted indices, a repeated entry (1 + 1) and a stored zero."""
    data = np.array([1.0, 1.0, 1.0, 0.5, 0.0, 3.0])
    indices = np.array([3, 1, 1, 2, 1, 0], dtype=index)
    return kind((data, indices, np.array([0, 3, 3, 6], dtype=index)), shape=(3, 4))


KINDS = {
    "csr_array": sp.csr_array(DENSE),
    "csr_matrix": sp.csr_matrix(DENSE),
    "csc": sp.csc_array(DENSE),
    "coo": sp.coo_array(DENSE),
    "coo_matrix": sp.coo_matrix(DENSE),
    "lil": sp.lil_array(DENSE),
    "dok": sp.dok_array(DENSE),
    "dia": sp.dia_array(DENSE),
    "bsr": sp.bsr_array(DENSE),
    "messy": messy(),
    "messy matrix": messy(sp.csr_matrix),
    "messy int64": messy(index=np.int64),
    "messy coo": sp.coo_array(([1, 1, 1, 0.5, 0, 3], ([0, 0, 0, 2, 2, 2], [3, 1, 1, 2, 1, 0])), shape=(3, 4)),
}


@pytest.mark.parametrize("matrix", KINDS.values(), ids=KINDS.keys())
def test_any_sparse_matrix_gives_sorted_merged_rows(matrix):
    weighted = Interactions.from_csr(matrix, weights="values")
    binary = Interactions.from_csr(matrix)
    assert np.array_equal(weighted.to_csr().toarray(), DENSE)
    assert np.array_equal(binary.to_csr().toarray(), DENSE != 0)
    assert binary.is_binary
    for data in (weighted, binary):
        rows = data.by_user
        assert rows.indptr.tolist() == [0, 2, 2, 4]
        assert rows.indices.tolist() == [1, 3, 0, 2]
        assert (rows.indptr.dtype, rows.indices.dtype) == (np.int64, np.int32)
    assert weighted.by_user.weights.dtype == np.float32


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_indices_of_either_width_that_scipy_keeps(index):
    matrix = sp.csr_array(DENSE)
    matrix.indices, matrix.indptr = matrix.indices.astype(index), matrix.indptr.astype(index)
    assert matrix.indices.dtype == index
    assert np.array_equal(Interactions.from_csr(matrix, weights="values").to_csr().toarray(), DENSE)


def test_the_callers_matrix_is_neither_changed_nor_frozen_nor_shared():
    for matrix in (messy(), sp.csr_array(DENSE.astype(np.float32))):
        before = [a.copy() for a in (matrix.data, matrix.indices, matrix.indptr)]
        flags = dict(vars(matrix))
        data = Interactions.from_csr(matrix, weights="values")
        for old, new in zip(before, (matrix.data, matrix.indices, matrix.indptr), strict=True):
            assert np.array_equal(old, new)
            assert new.flags.writeable
        assert set(vars(matrix)) == set(flags)
        matrix.indices[:] = 0
        matrix.data[:] = 9
        assert np.array_equal(data.to_csr().toarray(), DENSE)


def test_spare_room_at_the_end_of_a_matrix_is_not_read():
    matrix = sp.csr_array((2, 3))
    matrix.data, matrix.indices = np.array([1.0, np.nan]), np.array([2, 77], dtype=np.int32)
    matrix.indptr = np.array([0, 1, 1], dtype=np.int32)
    assert Interactions.from_csr(matrix).by_user.indices.tolist() == [2]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), max_size=30), st.booleans())
def test_against_a_dict_of_pairs(entries, keep):
    rows, columns, values = ([e[k] for e in entries] for k in range(3))
    matrix = sp.coo_array((np.array(values, dtype=float), (rows, columns)), shape=(5, 4))
    pairs = {}
    for row, column, value in entries:
        if value:
            pairs[row, column] = pairs.get((row, column), 0) + value
    data = Interactions.from_csr(matrix, weights="values" if keep else None, allow_empty=True)
    expected = np.zeros((5, 4))
    for place, value in pairs.items():
        expected[place] = value if keep else 1
    assert np.array_equal(data.to_csr().toarray(), expected)


def test_many_repeats_of_a_pair_do_not_wrap_around_to_nothing():
    matrix = sp.csr_array((np.ones(256), np.zeros(256, dtype=np.int32), np.array([0, 256])), shape=(1, 1))
    assert Interactions.from_csr(matrix).nnz == 1
    assert Interactions.from_csr(matrix, weights="values").by_user.weights.tolist() == [256]


def test_a_stored_zero_among_sorted_entries_is_dropped():
    matrix = sp.csr_array((np.array([1.0, 0.0, 2.0]), np.array([0, 1, 2]), np.array([0, 3])), shape=(1, 3))
    for weights in (None, "values"):
        assert Interactions.from_csr(matrix, weights=weights).by_user.indices.tolist() == [0, 2]


def test_values_that_are_all_one_are_binary():
    assert Interactions.from_csr(sp.csr_array(np.eye(3)), weights="values").is_binary


def test_ids_of_rows_and_columns():
    names = ["a", "b", "c"]
    data = Interactions.from_csr(sp.csr_array(DENSE), user_ids=names, item_ids=pd.Series([5, 6, 7, 8]))
    assert data.user_ids == Ids(names)
    assert data.item_ids == Ids([5, 6, 7, 8])


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (DENSE, "not ndarray; wrap it in scipy.sparse.csr_array"),
        ([[1, 0]], "not list; build one"),
        (pd.DataFrame(DENSE), "not DataFrame; use from_frame"),
        (None, "not NoneType"),
        (sp.coo_array(np.array([1.0, 2.0])), "two dimensions"),
        (sp.csr_array((3, 4)), "3 x 4 matrix holds no interactions"),
        (sp.csr_array(DENSE.astype(complex)), "complex128 values"),
        (sp.csr_array(np.where(DENSE == 3, np.nan, DENSE)), "1 NaN values, the first at row 2, column 0"),
        (sp.csr_array(np.where(DENSE == 3, np.inf, DENSE)), "1 infinite values, the first at row 2, column 0"),
        (sp.csr_array(-DENSE), "4 negative values, the first at row 0, column 1"),
        (sp.coo_array(-DENSE), "4 negative values, the first at row 0, column 1"),
        (sp.csr_array((2**31, 4)), "At most 2\\^31 - 1"),
    ],
)
def test_matrices_that_cannot_be_used(matrix, message):
    with pytest.raises(InvalidData, match=message):
        Interactions.from_csr(matrix)


@pytest.mark.parametrize(
    ("indices", "indptr", "message"),
    [
        ([0, 4], [0, 1, 2], "indices from 0 to 4"),
        ([0, -1], [0, 1, 2], "indices from -1"),
        ([0, 1], [0, 5, 2], "indptr"),
        ([0, 1], [1, 1, 2], "indptr"),
    ],
)
def test_damaged_matrices_do_not_reach_the_kernels(indices, indptr, message):
    matrix = sp.csr_array((2, 4))
    matrix.data = np.ones(2)
    matrix.indices, matrix.indptr = np.array(indices, dtype=np.int32), np.array(indptr, dtype=np.int32)
    with pytest.raises(InvalidData, match=message):
        Interactions.from_csr(matrix)


def test_a_transposed_matrix_is_recognised_by_its_ids():
    matrix = sp.csr_array(DENSE.T)  # items x users
    for ids in ({"user_ids": "abc"}, {"item_ids": range(4)}, {"user_ids": "abc", "item_ids": range(4)}):
        with pytest.raises(InvalidData, match="looks transposed: users must be rows"):
            Interactions.from_csr(matrix, **{kind: list(values) for kind, values in ids.items()})


def test_ids_that_do_not_fit():
    with pytest.raises(InvalidData, match="user_ids holds 2 ids, but the matrix has 3 rows"):
        Interactions.from_csr(sp.csr_array(DENSE), user_ids=["a", "b"])
    with pytest.raises(InvalidData, match="item_ids holds 5 ids, but the matrix has 4 columns"):
        Interactions.from_csr(sp.csr_array(DENSE), user_ids=[1, 2, 3], item_ids=range(5))
    with pytest.raises(InvalidData, match="2 appears more than once"):
        Interactions.from_csr(sp.csr_array(DENSE), user_ids=[1, 2, 2])
    with pytest.raises(InvalidData, match="1 of the user_ids are null"):
        Interactions.from_csr(sp.csr_array(DENSE), user_ids=["a", None, "b"])


def test_unknown_weights():
    with pytest.raises(InvalidParameter, match="None or 'values'"):
        Interactions.from_csr(sp.csr_array(DENSE), weights="sum")


def test_weights_too_large_for_float32():
    with pytest.raises(InvalidData, match="float32"):
        Interactions.from_csr(sp.csr_array(np.array([[1e300]])), weights="values")


def test_an_empty_matrix_where_it_is_wanted():
    data = Interactions.from_csr(sp.csr_array((2, 3)), allow_empty=True)
    assert (data.nnz, data.shape) == (0, (2, 3))
    assert data.by_item.indptr.tolist() == [0, 0, 0, 0]
