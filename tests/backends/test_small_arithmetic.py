"""Test every backend's arithmetic on d-vectors and d x d matrices against plain NumPy."""

import numpy as np
import pytest
import scipy.linalg
from conftest import as_numpy, random_rows

from fairmf import FairALS
from fairmf.backends import numpy_arrays
from fairmf.backends.numpy_arrays import CLEAR, LARGE, NEARLY, _largest_eigenvalue, fixed_signs
from fairmf.backends.registry import get_backend
from fairmf.data.interactions import Interactions

D = 7


def test_corrected_shift(backend):
    generator = np.random.default_rng(2)
    q, t, strength, response, rest = vectors = generator.random((5, D))
    for off in (None, rest):
        own = [backend.vector(x) for x in vectors[:4]]
        better, answer = backend.corrected_shift(*own, None if off is None else backend.vector(off))
        expected = q + (strength * t + (0.0 if off is None else off) - q) / (1 + strength * response)
        np.testing.assert_allclose(as_numpy(better), expected, rtol=1e-12)
        np.testing.assert_allclose(as_numpy(answer), response * (q - expected), rtol=1e-12)


def test_mean_response(backend):
    generator = np.random.default_rng(0)
    shares, ridge, slopes = (1 + generator.random(6) for _ in range(3))
    values, typical = (generator.random(D) for _ in range(2))
    expected = np.zeros(D)
    for k in range(D):
        for s, r, c in zip(shares, ridge, slopes, strict=True):
            expected[k] += s * (0.3 / (values[k] + r) + 0.7 / (values[k] + r + c * typical[k]))
    own = [backend.vector(x) for x in (shares, ridge, slopes, values, typical)]
    np.testing.assert_allclose(as_numpy(backend.mean_response(*own, 0.7)), expected, rtol=1e-12)


@pytest.mark.parametrize("shake", [0.0, 1e-3, 1.0])
def test_diagonalise_gives_the_matrix_back_whatever_the_guess(backend, shake):
    """A backend may return eigenvectors, or the guess with the off-diagonal part."""
    generator = np.random.default_rng(3)
    half = generator.normal(size=(D, D))
    matrix = half @ half.T
    _, vectors = np.linalg.eigh(matrix)
    guess, _ = np.linalg.qr(vectors + shake * generator.normal(size=(D, D)))
    for given in (None, backend.vector(guess)):
        found = backend.diagonalise(backend.vector(matrix), 0.1, given)
        values, basis = as_numpy(found.values), as_numpy(found.vectors)
        rest = np.zeros((D, D)) if found.rest is None else as_numpy(found.rest)
        # Eigenvectors of small matrices are computed in float64. Products with a guess may be rounded as factors are.
        off = 1e-12 if found.rest is None else max(1e-12, 10 * np.finfo(backend.dtype).eps * matrix.max())
        np.testing.assert_allclose(basis @ (np.diag(values) + rest) @ basis.T, matrix, atol=off)
        np.testing.assert_allclose(basis.T @ basis, np.eye(D), atol=1e-12)
        assert np.abs(rest).max() < 0.2 * values.max()
        assert found.rest is None or shake < 1


def test_the_cpu_backend_rounds_eigenvectors_only_where_the_ridge_is_clearly_larger():
    """What rounding to float32 adds to a matrix must be far below every ridge."""
    backend, generator, d = get_backend("cpu"), np.random.default_rng(8), LARGE
    basis = np.linalg.qr(generator.normal(size=(d, d)))[0]
    matrix = basis @ np.diag(np.geomspace(1e-6, 1.0, d)) @ basis.T
    size = np.linalg.norm(matrix)
    for ridge, largest in ((0.0, 0.0), (0.9 * CLEAR * size, 0.0), (1.1 * CLEAR * size, 1e-2), (1.0, 1e-2)):
        values, vectors, _ = backend.diagonalise(matrix, ridge, None)
        assert values.dtype == vectors.dtype == np.float64
        off = np.abs(np.linalg.eigvalsh((vectors * values) @ vectors.T - matrix)).max()
        assert off < max(largest * ridge, 1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(d), atol=1e-5 if largest else 1e-12)
    assert off > 1e-10  # so that this test would see eigenvectors in float64
    assert np.isfinite(backend.diagonalise(1e39 * matrix, 1e39, None).values).all()  # beyond the range of float32
    values, vectors, _ = backend.diagonalise(matrix[1:, 1:], 1.0, None)  # too small for float32 to save time
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix[1:, 1:], atol=1e-12)


def test_the_cpu_backend_keeps_a_guess_only_where_little_is_off_the_diagonal():
    """Below NEARLY of diagonal + ridge, by the largest eigenvalue, and not where float32 would lose the ridge."""
    backend, generator = get_backend("cpu"), np.random.default_rng(6)
    noise = generator.normal(size=(40, 40))
    noise = (noise + noise.T) / np.abs(np.linalg.eigvalsh(noise + noise.T)).max()  # largest eigenvalue 1
    np.fill_diagonal(noise, 0.0)
    largest = np.abs(np.linalg.eigvalsh(noise)).max()
    guess = np.linalg.qr(generator.normal(size=(40, 40)))[0]
    for ridge in (0.5, 3.0):
        for part, kept in ((0.8, True), (0.95, True), (1.1, False), (5.0, False)):
            # diagonal + ridge is 4 everywhere
            inner = np.diag(np.full(40, 4.0 - ridge)) + noise * (part * NEARLY * 4.0 / largest)
            found = backend.diagonalise(guess @ inner @ guess.T, ridge, guess)
            assert np.array_equal(found.vectors, guess) == (found.rest is not None) == kept
    nearly = guess @ np.diag(np.linspace(1.0, 2.0, 40)) @ guess.T
    assert backend.diagonalise(nearly, 1e-3, guess).rest is not None
    assert backend.diagonalise(nearly, 1e-7, guess).rest is None


def test_the_largest_eigenvalue_of_a_small_regular_part_is_found():
    """All its row sums are 0, so that a start with equal numbers would be orthogonal to its eigenvectors."""
    for at in (0, 17, 90):
        matrix = np.zeros((128, 128), dtype=np.float32)
        cycle = np.array([[0, 1, 0, -1], [1, 0, -1, 0], [0, -1, 0, 1], [-1, 0, 1, 0]])  # eigenvalues 2, -2 and 0
        matrix[at : at + 4, at : at + 4] = cycle
        assert _largest_eigenvalue(matrix, np.ones(128)) == pytest.approx(2.0, rel=1e-5)


def test_diagonalise_leaves_no_value_below_0(backend):
    """Rounding leaves some of the eigenvalues that are 0 slightly below it."""
    half = np.random.default_rng(7).normal(size=(D, 2))
    matrix = half @ half.T
    assert np.linalg.eigvalsh(matrix).min() < 0
    for guess in (None, backend.vector(np.linalg.eigh(matrix)[1])):
        assert as_numpy(backend.diagonalise(backend.vector(matrix), 0.1, guess).values).min() >= 0


def test_diagonalise_fixes_the_signs_of_eigenvectors(backend):
    """The largest entry is positive; where rounding could decide which is largest, the first of those alike."""
    generator = np.random.default_rng(4)
    half = generator.normal(size=(D, D))
    alike = np.kron(np.eye(3), [[2.0, -1.0], [-1.0, 2.0]]) + np.diag(np.repeat([0.0, 5.0, 9.0], 2))
    for matrix in (half @ half.T, alike):
        basis = as_numpy(backend.diagonalise(backend.vector(matrix), 0.1, None).vectors)
        for column in basis.T:
            assert column[np.flatnonzero(np.abs(column) > 0.999999 * np.abs(column).max())[0]] > 0


@pytest.mark.parametrize(("name", "clear"), [("cpu", 1e-9), ("cpu", 1e9), ("reference", 1e-9)])
def test_a_fit_does_not_depend_on_the_signs_that_lapack_returns(name, clear, monkeypatch):
    """Neither with NumPy's eigenvectors in float64 nor with SciPy's in float32."""
    monkeypatch.setattr(numpy_arrays, "CLEAR", clear)
    monkeypatch.setattr(numpy_arrays, "LARGE", 1)
    generator, calls = np.random.default_rng(5), []
    data = random_rows(60, 30)

    def flipping(eigh):
        def flipped(matrix, **options):
            calls.append(eigh)
            values, vectors = eigh(matrix, **options)
            return values, vectors * generator.choice([-1.0, 1.0], size=len(values)).astype(vectors.dtype)

        return flipped

    def fit():
        return FairALS(factors=6, epochs=3, backend=name).fit(Interactions(data, 30))

    expected = fit()
    for module in (np.linalg, scipy.linalg):
        monkeypatch.setattr(module, "eigh", flipping(module.eigh))
    found = fit()
    single = name == "cpu" and clear < 1
    assert {eigh.__module__.startswith("scipy") for eigh in calls} == {single}
    np.testing.assert_array_equal(found.user_factors, expected.user_factors)
    np.testing.assert_array_equal(found.item_factors, expected.item_factors)


@pytest.mark.parametrize(("kind", "alike", "larger"), [("f4", 1e-5, 1e-3), ("f8", 1e-7, 1e-5)])
def test_signs_do_not_depend_on_rounding(kind, alike, larger):
    """Entries that differ by less than rounding count as ties: the first is made positive."""
    columns = np.array([[-1.0, 1.0 + alike, 0.0], [-1.0, 1.0 + larger, 0.0]], dtype=kind).T
    found = fixed_signs(columns)
    assert found.dtype == kind
    assert np.sign(found.T[:, :2]).tolist() == [[1, -1], [-1, 1]]


def test_diagonalise_of_what_is_not_finite_is_nan(backend):
    found = backend.diagonalise(backend.vector(np.full((D, D), np.nan)), 0.1, backend.vector(np.eye(D)))
    assert np.isnan(as_numpy(found.values)).all()
