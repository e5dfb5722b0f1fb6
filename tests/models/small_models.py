"""Small fitted models for the tests of files, and what counts as the same model."""

import functools

import numpy as np
from conftest import paper_als, random_rows

from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.models.als import IALS, FairALS
from fairmf.models.fiadmm import FiADMM
from fairmf.models.popularity import Popularity

MODELS = {
    "fair_als": lambda: paper_als(factors=4, epochs=3, fairness=2.0, regularization=0.01),
    "fair_als_defaults": lambda: FairALS(factors=4, epochs=3),
    "fair_als_exact": lambda: paper_als(factors=4, epochs=2, solver="cholesky", backend="reference"),
    "fair_als_subspace": lambda: paper_als(factors=4, epochs=2, solver="subspace", block_size=3),
    "ials": lambda: IALS(factors=3, epochs=2, random_state=None, num_threads=1),
    "fiadmm": lambda: FiADMM(factors=4, epochs=12),
    "fiadmm_fixed": lambda: FiADMM(factors=4, epochs=3, lambda_f=30.0, rho=1e4, gamma=0.01),
    "popularity": lambda: Popularity(num_threads=2),
}
N, M = 40, 30


@functools.cache
def data(weighted=False, named=True):
    users = Ids([f"user {i} é" for i in range(N)]) if named else None
    items = Ids(np.arange(M, dtype=np.uint16) * 7 + 3) if named else None
    return Interactions(random_rows(N, M, weighted=weighted), M, users, items)


@functools.cache
def fitted(name="fair_als", weighted=False, named=True):
    return MODELS[name]().fit(data(weighted, named))


def same_bits(a, b):
    """Equal arrays of equal kind."""
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def assert_same_model(loaded, model, histories=True):
    """Everything a fit left is there again, bit for bit."""
    assert type(loaded) is type(model)
    assert vars(loaded).keys() == vars(model).keys()
    for name, value in vars(model).items():
        if name != "_fitted":
            assert getattr(loaded, name) == value
    ours, theirs = loaded.fitted, model.fitted
    for name in ("user_factors", "item_factors", "popularity", "mean_user", "merit"):
        assert same_bits(getattr(ours, name), getattr(theirs, name)), name
    for name in ("trained_fairness", "fairness", "history", "settings", "extra"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for name in ("user_ids", "item_ids"):
        one, other = getattr(ours, name), getattr(theirs, name)
        assert (one is None) == (other is None)
        if one is not None:
            assert one.values.dtype == other.values.dtype
            assert one.values.tolist() == other.values.tolist()
            assert [type(x) for x in one.values.tolist()] == [type(x) for x in other.values.tolist()]
    if histories:
        assert ours.interactions.fingerprint() == theirs.interactions.fingerprint()


def assert_same_fit(ours, theirs):
    """Two fits agree in every bit that is not a time."""
    for name in ("user_factors", "item_factors", "mean_user", "merit"):
        assert same_bits(getattr(ours.fitted, name), getattr(theirs.fitted, name)), name
    assert ours.fitted.extra == theirs.fitted.extra
    assert timeless(ours.history) == timeless(theirs.history)


def timeless(history):
    """A history without its seconds."""

    def without(record):
        return {name: value for name, value in record.items() if name != "seconds"}

    return [without(r) for r in history.records], history.verdict, history.reason, history.kept_epoch, without(
        history.final
    )  # fmt: skip
