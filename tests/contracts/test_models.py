"""Every model, solver, backend and engine: what must hold of all of them. A new one gets these tests by one row."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import BACKENDS
from in_process import InProcess

import fairmf
from fairmf import IALS, FairALS, FiADMM, Interactions, synthetic
from fairmf.backends.registry import get_backend
from fairmf.errors import InvalidParameter
from fairmf.models.base import IterativeModel

DATA = synthetic(60, 40, 900, random_state=2)
COMMON = {"factors": 5, "regularization": 0.05}
# model, solver, engines
ROWS = [
    (IALS, "eigenbasis_cg", ("local", "ray")),
    (IALS, "cholesky", ("local",)),
    (IALS, "subspace", ("local",)),
    (IALS, "alternating_subspace", ("local",)),
    (FairALS, "eigenbasis_cg", ("local", "ray")),
    (FairALS, "cholesky", ("local",)),
    (FairALS, "subspace", ("local",)),
    (FairALS, "alternating_subspace", ("local",)),
    (FiADMM, "cholesky", ("local",)),
    (FiADMM, "eigenbasis_cg", ("local",)),
]
CASES = [(model, solver, engine) for model, solver, engines in ROWS for engine in engines]
NAMES = [f"{model.__name__}-{solver}-{engine}" for model, solver, engine in CASES]


def fitted(model, solver, backend, engine, **settings):
    kind = {} if engine == "local" else {"engine": engine}
    cluster = InProcess(shards=3) if engine == "ray" else None
    made = model(**COMMON, solver=solver, backend=backend, **kind, **settings)
    return made.fit(DATA, progress=False, cluster=cluster)


def test_the_rows_name_every_model_solver_and_engine():
    """A combination is in the table, or `fit` refuses it."""
    trained = [kind for kind in (getattr(fairmf, name) for name in fairmf.__all__) if is_trained(kind)]
    rules = {kind: {field.name: field.metadata["choices"] for field in dataclasses.fields(kind)} for kind in trained}
    declared = {(kind, solver) for kind, rule in rules.items() for solver in rule["solver"]}
    assert {(model, solver) for model, solver, _ in ROWS} == declared
    for model, solver, engines in ROWS:
        assert {*engines} <= {*rules[model]["engine"]}
        for engine in {"local", "ray"} - {*engines}:
            with pytest.raises(InvalidParameter, match="engine"):
                fitted(model, solver, "cpu", engine, epochs=1)


def is_trained(kind):
    return isinstance(kind, type) and issubclass(kind, IterativeModel) and kind is not IterativeModel


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("model", "solver", "engine"), CASES, ids=NAMES)
def test_epochs_are_finite_fall_and_answer(model, solver, engine, backend):
    trained = fitted(model, solver, backend, engine, epochs=4)
    totals = trained.history.column("objective.total")
    assert len(totals) == 4
    assert totals[-1] < totals[0]
    if model is not FiADMM:  # ADMM need not fall in every epoch
        rounding = get_backend(backend).rounding
        assert all(after <= before * (1 + rounding) for before, after in itertools.pairwise(totals))
        found = trained.fold_in(DATA)
        np.testing.assert_allclose(found, trained.user_factors, atol=2e-3 * np.abs(found).max())
    items, scores = trained.recommend(DATA.user_ids.values[:7], N=6)
    assert items.shape == scores.shape == (7, 6)
    assert (np.diff(scores, axis=1) <= 0).all()


@functools.cache
def trained_with(what, model, solver, engine, backend):
    """A short fit with features of items and users, with dislikes, or with both; some rows have no interactions."""
    values, generator = DATA.to_csr().toarray(), np.random.default_rng(0)
    values[:2] = values[:, :3] = 0
    if "dislikes" in what:
        values *= np.where(generator.random(values.shape) < 0.2, -0.5, 1.0)
    features = {}
    if "features" in what:
        found = (sp.random(n, 5, 0.5, format="csr", random_state=n) for n in values.shape)
        features = dict(zip(("user_features", "item_features"), found, strict=True))
    kind, cluster = ({}, None) if engine == "local" else ({"engine": engine}, InProcess(shards=3))
    made = model(**COMMON, solver=solver, backend=backend, epochs=3, **kind)
    data = Interactions.from_csr(sp.csr_array(values), weights="values")
    return made.fit(data, progress=False, cluster=cluster, **features)


@pytest.mark.parametrize("backend", [case for case in BACKENDS if case.values != ("reference",)])
@pytest.mark.parametrize("what", ["features", "dislikes", "features and dislikes"])
@pytest.mark.parametrize(("model", "solver", "engine"), CASES, ids=NAMES)
def test_features_and_dislikes_are_those_of_the_reference(model, solver, engine, what, backend):
    ours, theirs = (trained_with(what, model, solver, engine, name) for name in (backend, "reference"))
    totals = [trained.history.column("objective.total") for trained in (ours, theirs)]
    np.testing.assert_allclose(*totals, rtol=1e-4)
    scores, expected = (trained.user_factors @ trained.item_factors.T for trained in (ours, theirs))
    np.testing.assert_allclose(scores, expected, atol=5e-3 * np.abs(expected).max())
    plain = trained_with("nothing", model, solver, engine, "reference")  # the terms must matter for this to show much
    assert abs(plain.history.column("objective.total")[-1] / totals[1][-1] - 1) > 1e-3


@pytest.mark.parametrize("model", [IALS, FairALS])
def test_solvers_and_engines_go_to_the_same_objective(model):
    """From the same start, the same number of epochs: cheaper steps may lag behind, and nobody is below the minimum."""
    final = {
        (solver, engine): fitted(m, solver, "cpu", engine, epochs=30).history.final["objective"]["total"]
        for m, solver, engine in CASES
        if m is model
    }
    least = min(final.values())
    assert all(value <= 1.01 * least for value in final.values()), final
