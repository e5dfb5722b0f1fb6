"""The nearest-neighbour index against a full sort: order, exclusions, offsets, ids, determinism."""

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairmf.data.csr import Rows
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter, MissingDependency
from fairmf.ranking.ann import AnnIndex

faiss = pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')


def rows_of(lists):
    indptr = np.concatenate(([0], np.cumsum([len(x) for x in lists]))).astype(np.int64)
    return Rows(indptr, np.array([j for x in lists for j in x], dtype=np.int32), None)


def by_hand(user, items, offsets, hidden):
    """All allowed (item, score), best first, lower position first among equals."""
    scores = {j: float(np.dot(user, items[j])) + float(offsets[j]) for j in range(len(items)) if j not in hidden}
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def random_case(seed, m, d, n, whole_numbers, with_offsets):
    random = np.random.default_rng(seed)
    draw = (
        (lambda *shape: random.integers(-2, 3, shape)) if whole_numbers else (lambda *shape: random.normal(size=shape))
    )
    items, users = draw(m, d).astype(np.float32), draw(n, d).astype(np.float32)
    offsets = draw(m).astype(np.float32) if with_offsets else None
    hidden = [random.permutation(m)[: random.integers(0, m + 1)].tolist() for _ in range(n)]
    return items, users, offsets, hidden


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 6), st.integers(0, 8), st.integers(1, 70),
    st.booleans(), st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_lists_are_right_whatever_is_looked_at(seed, m, d, n, N, whole, with_offsets, excluding, exhaustive):
    items, users, offsets, hidden = random_case(seed, m, d, n, whole, with_offsets)
    hidden = hidden if excluding else [[] for _ in range(n)]
    groups = int(np.random.default_rng(seed).integers(1, m + 1))
    index = AnnIndex.build(items, offsets=offsets, groups=groups, probes=groups if exhaustive else 1, num_threads=1)
    found, scores = index.search(users, N, exclude=rows_of(hidden) if excluding else None, num_threads=1)
    assert found.shape == scores.shape == (n, min(N, m))
    for i in range(n):
        best = by_hand(users[i], items, np.zeros(m) if offsets is None else offsets, set(hidden[i]))
        exact = dict(best)
        filled = min(N, len(best))
        listed = found[i, :filled].tolist()
        assert len(set(listed)) == filled
        assert set(listed) <= set(exact)
        assert (found[i, filled:] == -1).all()
        assert np.isnan(scores[i, filled:]).all()
        np.testing.assert_allclose(scores[i, :filled], [exact[j] for j in listed], rtol=1e-4, atol=1e-5)
        pairs = list(zip((-scores[i, :filled]).tolist(), listed, strict=True))
        assert pairs == sorted(pairs)
        if exhaustive:  # with whole numbers the last place may go to another item of the same score
            np.testing.assert_allclose(scores[i, :filled], [s for _, s in best[:filled]], rtol=1e-4, atol=1e-5)


def clustered(m=4000, d=24, n=200, seed=0):
    random = np.random.default_rng(seed)
    centres = random.normal(size=(40, d))
    items = centres[random.integers(0, 40, m)] + 0.5 * random.normal(size=(m, d))
    return items * random.gamma(2, 0.5, size=(m, 1)), centres[random.integers(0, 40, n)] + random.normal(size=(n, d))


def recall(found, users, items):
    exact = np.argsort(-(users @ items.T), axis=1, kind="stable")[:, : found.shape[1]]
    return np.mean([len(set(a) & set(b)) for a, b in zip(exact.tolist(), found.tolist(), strict=True)]) / found.shape[1]


@pytest.mark.slow
def test_more_probes_find_more_and_the_default_finds_nearly_all():
    items, users = clustered()
    index = AnnIndex.build(items)
    few, default = index.search(users, 50, probes=4)[0], index.search(users, 50)[0]
    assert recall(few, users, items) < recall(default, users, items)
    assert recall(default, users, items) > 0.97
    assert recall(index.search(users, 50, probes=index.n_groups)[0], users, items) > 0.9999


def test_a_user_of_any_length_gets_the_same_items():
    items, users = clustered(m=800)
    index = AnnIndex.build(items, probes=10)
    short, scores = index.search(users, 10)
    long, larger = index.search(users * 1024, 10)
    np.testing.assert_array_equal(short, long)
    np.testing.assert_array_equal(scores * 1024, larger)


def test_same_bits_for_any_number_of_threads_and_any_batch():
    items, users = clustered(m=1500, n=60)
    one, two = (AnnIndex.build(items, num_threads=t) for t in (1, 2))
    np.testing.assert_array_equal(one.centroids, two.centroids)
    np.testing.assert_array_equal(one.assignment, two.assignment)
    a, b = one.search(users, 20, num_threads=1), two.search(users, 20, num_threads=2)
    np.testing.assert_array_equal(a[0], b[0])
    np.testing.assert_array_equal(a[1], b[1])
    alone = np.concatenate([one.search(users[i : i + 1], 20)[0] for i in range(len(users))])
    np.testing.assert_array_equal(alone, a[0])


def test_threads_are_given_back():
    before = faiss.omp_get_max_threads()
    index = AnnIndex.build(np.eye(3), num_threads=1)
    index.search(np.eye(3), 1, num_threads=1)
    assert faiss.omp_get_max_threads() == before


def test_ids_come_back_as_they_went_in():
    items = np.diag([3.0, 2.0, 1.0])
    users = np.array([[1.0, 1.0, 1.0]])
    hide_first = rows_of([[0]])
    for names, missing in ((["a", "b", "c"], None), ([7, 8, 9], -1), ([("x", 1), "y", 2.5], None)):
        ids, scores = AnnIndex.build(items, names).recommend(users, N=3, exclude=hide_first)
        assert ids.tolist() == [[names[1], names[2], missing]]
        np.testing.assert_array_equal(scores, [[2, 1, np.nan]])
    assert AnnIndex.build(items).recommend(users, N=2)[0].tolist() == [[0, 1]]


def test_without_the_extra_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "faiss", None)
    for ask in (lambda: AnnIndex.build(np.eye(2)), lambda: AnnIndex.load(tmp_path / "x")):
        with pytest.raises(MissingDependency, match=r'pip install "(fairmf\[ann\]|faiss-cpu)'):
            ask()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"item_vectors": np.ones(3)}, "must be a matrix"),
        ({"item_vectors": np.ones((0, 3))}, "must be a matrix"),
        ({"item_vectors": np.array([[1.0, np.nan]])}, "item_vectors holds numbers that are not finite"),
        ({"ids": ["a"]}, "1 item ids for 4 item vectors"),
        ({"ids": ["a", "a", "b", "c"]}, "unique"),
        ({"offsets": np.ones(3)}, "offsets must be 4 finite numbers"),
        ({"offsets": np.array([1, 2, 3, np.inf])}, "offsets must be 4 finite numbers"),
        ({"groups": 5}, "'groups' parameter of AnnIndex must be an integer >= 1 and <= 4. Got 5"),
        ({"groups": 2, "probes": 3}, "'probes' parameter of AnnIndex must be an integer >= 1 and <= 2. Got 3"),
        ({"num_threads": -1}, "'num_threads' parameter of AnnIndex must be an integer >= 0"),
    ],
)
def test_bad_input_to_build(arguments, problem):
    with pytest.raises((InvalidData, InvalidParameter), match=problem):
        AnnIndex.build(**({"item_vectors": np.eye(4)} | arguments))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"user_vectors": np.ones((2, 3))}, "user_vectors must have 4 columns"),
        ({"user_vectors": np.full((2, 4), np.inf)}, "not finite"),
        ({"N": 0}, "'N' parameter must be an integer >= 1"),
        ({"N": True}, "'N' parameter must be an integer >= 1"),
        ({"probes": 0}, "'probes' parameter of AnnIndex must be an integer >= 1"),
        ({"exclude": rows_of([[1]])}, "one row per user: 2. Got 1"),
        ({"exclude": rows_of([[1], [4]])}, r"outside 0\.\.3"),
        ({"exclude": rows_of([[1], [-1]])}, r"outside 0\.\.3"),
    ],
)
def test_bad_input_to_search(arguments, problem):
    index = AnnIndex.build(np.eye(4))
    with pytest.raises((InvalidData, InvalidParameter), match=problem):
        index.search(**({"user_vectors": np.eye(4)[:2], "N": 2} | arguments))


HUGE = [1e16, 1e19, 3e38]


@pytest.mark.parametrize("size", HUGE)
def test_numbers_that_faiss_would_end_the_process_over_are_refused(size, tmp_path):
    items, users, offsets, _ = random_case(0, 40, 4, 3, False, True)
    far = items.copy()
    far[7, 2] = -size
    with pytest.raises(InvalidData, match=r"item_vectors holds .* takes numbers up to 1e"):
        AnnIndex.build(far)
    pushed = np.asarray(offsets).copy()
    pushed[3] = size
    with pytest.raises(InvalidData, match="offsets holds"):
        AnnIndex.build(items, offsets=pushed)
    index = AnnIndex.build(items, offsets=offsets)
    with pytest.raises(InvalidData, match="user_vectors holds"):
        index.search(np.full_like(users, size), 3)
    for name in ("item_vectors", "offsets", "centroids"):
        forged = AnnIndex.build(items.copy(), offsets=np.array(offsets))
        getattr(forged, name).flat[0] = size
        forged.save(tmp_path / "forged.ann")
        with pytest.raises(BrokenFile, match=f"{name} holds"):
            AnnIndex.load(tmp_path / "forged.ann")


def test_the_largest_numbers_that_are_taken_are_ranked():
    items, users, _, _ = random_case(1, 40, 4, 3, False, False)
    largest = np.abs(items).max()
    index = AnnIndex.build((items / largest * 0.99e15).astype(np.float32), probes=1, groups=8)
    found, scores = index.search((users / np.abs(users).max() * 0.99e15).astype(np.float32), 5)
    assert np.isfinite(scores[found >= 0]).all()
    assert (found[:, 0] == AnnIndex.build(items, groups=1).search(users, 5)[0][:, 0]).mean() >= 0.5
