"""A loaded model is the saved one: same bits, same answers, whatever its class, ids and data."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from small_models import MODELS, M, N, assert_same_model, data, fitted, same_bits

import fairmf
from fairmf import FairALS, load_model
from fairmf.errors import InvalidData, InvalidParameter, MissingHistories, NotFitted


@pytest.fixture(params=[False, True], ids=["read", "mapped"])
def mmap(request):
    return request.param


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("named", [False, True], ids=["rows", "ids"])
def test_everything_comes_back(name, named, weighted, mmap, tmp_path):
    model = fitted(name, weighted, named)
    model.save(tmp_path / "model.fairmf")
    loaded = load_model(tmp_path / "model.fairmf", mmap=mmap)
    assert_same_model(loaded, model)
    users = model.fitted.user_ids.values if named else np.arange(N)
    for ours, theirs in zip(loaded.recommend(users, N=5), model.recommend(users, N=5), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    assert same_bits(loaded.fold_in(data(weighted, named)), model.fold_in(data(weighted, named)))
    if name != "popularity":
        assert same_bits(loaded.with_fairness(3.0).user_factors, model.with_fairness(3.0).user_factors)
    if name.startswith("fiadmm"):
        cohort = {"method": "cohort", "epochs": 3}
        assert same_bits(loaded.fold_in(data(weighted), **cohort), model.fold_in(data(weighted), **cohort))


def test_a_turned_model_comes_back_turned(tmp_path):
    model = fitted().with_fairness(0.25)
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert_same_model(loaded, model)
    assert (loaded.fitted.fairness, loaded.fitted.trained_fairness) == (0.25, 2.0)


def test_settings_of_the_fit_and_of_the_next_fit_are_both_kept(tmp_path):
    model = FairALS(factors=4, epochs=1).fit(data())
    model.factors, model.epochs = 64, 3
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert (loaded.factors, loaded.fitted.settings["factors"]) == (64, 4)
    assert_same_model(loaded, model)


def test_without_interactions_the_file_holds_nobodys_history(tmp_path):
    model = fitted()
    model.save(tmp_path / "all")
    model.save(tmp_path / "less", interactions=False)
    assert (tmp_path / "less").stat().st_size < (tmp_path / "all").stat().st_size
    assert data().by_user.indices.tobytes() not in (tmp_path / "less").read_bytes()
    assert data().by_user.indices.tobytes() in (tmp_path / "all").read_bytes()
    loaded = load_model(tmp_path / "less")
    assert_same_model(loaded, model, histories=False)
    assert loaded.fitted.interactions is None
    assert same_bits(loaded.fold_in(data()), model.fold_in(data()))
    with pytest.raises(MissingHistories, match="without its users' histories and without user_sensitivity"):
        loaded.with_fairness(1.0)
    loaded.save(tmp_path / "again")
    assert load_model(tmp_path / "again").fitted.interactions is None


def test_provenance(tmp_path):
    fitted().save(tmp_path / "model", interactions=False)
    known = load_model(tmp_path / "model").fitted.provenance
    assert known["data_fingerprint"] == data().fingerprint()
    assert known["versions"]["fairmf"] == fairmf.__version__
    assert known["versions"]["numpy"] == np.__version__
    assert set(known["versions"]) == {"fairmf", "python", "numpy", "numba", "scipy"}
    assert known["created"].endswith("+00:00")
    load_model(tmp_path / "model").save(tmp_path / "copy")  # no data any more, but still known which they were
    assert load_model(tmp_path / "copy").fitted.provenance["data_fingerprint"] == data().fingerprint()


def test_item_offsets_come_back(tmp_path):
    model = MODELS["fair_als"]().fit(data())
    offsets = np.linspace(-1, 1, M, dtype=np.float32)
    model._fitted = replace(model.fitted, item_offsets=offsets)
    model.save(tmp_path / "model")
    assert same_bits(load_model(tmp_path / "model").fitted.item_offsets, offsets)
    assert fitted().fitted.item_offsets is None


def test_mapped_arrays_stay_in_the_file(tmp_path):
    fitted().save(tmp_path / "model")
    before = (tmp_path / "model").read_bytes()
    mapped = load_model(tmp_path / "model", mmap=True)
    base = mapped.user_factors
    while isinstance(base, np.ndarray):
        base = base.base
    assert type(base).__name__ in ("mmap", "memoryview")
    kept = mapped.user_factors.copy()
    fitted("ials").save(tmp_path / "model")  # replaced, not overwritten: whoever reads the old one is not disturbed
    assert same_bits(mapped.user_factors, kept)
    (tmp_path / "model").write_bytes(before)
    mapped.user_factors[:] = 0  # a private copy
    assert (tmp_path / "model").read_bytes() == before


def test_loading_and_saving_import_no_numba(tmp_path):
    fitted().save(tmp_path / "model")
    code = (
        "import sys, fairmf; model = fairmf.load_model(sys.argv[1]); model.save(sys.argv[1] + '2');"
        "print(len(model.user_factors), 'numba' in sys.modules, 'pyarrow' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "model"], capture_output=True, text=True)
    assert done.stdout.split() == [str(N), "False", "False"], done.stderr


def test_a_loaded_model_can_be_trained_again_and_started_from(tmp_path):
    model = fitted()
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert same_bits(MODELS["fair_als"]().fit(data(), init=loaded).user_factors,
                     MODELS["fair_als"]().fit(data(), init=model).user_factors)  # fmt: skip
    assert same_bits(loaded.fit(data()).user_factors, model.user_factors)


class Own(FairALS):
    pass


def test_what_cannot_be_saved_is_refused(tmp_path):
    with pytest.raises(NotFitted):
        FairALS().save(tmp_path / "model")
    own = Own(factors=2, epochs=1).fit(data())
    with pytest.raises(InvalidParameter, match=r"fairmf's own models \(FairALS, .*Got a Own instead"):
        own.save(tmp_path / "model")
    broken = MODELS["ials"]().fit(data())
    broken.user_factors[3, 1] = np.nan
    with pytest.raises(InvalidData, match="its user_factors hold numbers that are not finite"):
        broken.save(tmp_path / "model")
    odd = MODELS["ials"]().fit(data())
    odd.history.records[0]["note"] = object()
    with pytest.raises(InvalidData, match="history of this model cannot be stored: it holds a value of type"):
        odd.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_histories_may_hold_what_json_does_not(tmp_path):
    model = MODELS["ials"]().fit(data())
    model.history.records[0] |= {
        "bound": float("inf"), "note": (1, "a", None), "nan": [float("-inf")], 5: b"\x00\xff", "$float": {"$x": 1},
        "numpy": np.float32(0.1), "array": np.arange(3), "flag": np.True_,
    }  # fmt: skip
    model.save(tmp_path / "model")
    record = load_model(tmp_path / "model").history.records[0]
    expected = model.history.records[0] | {"array": [0, 1, 2], "flag": True, "numpy": float(np.float32(0.1))}
    assert record == expected
    assert isinstance(record["note"], tuple)


def test_fairness_weights_and_offsets_come_back(tmp_path):
    weights = np.linspace(0, 3, M)
    model = FairALS(factors=4, epochs=2).fit(data(), fairness_weights=weights)
    model._fitted = replace(model.fitted, item_offsets=np.linspace(-1, 1, M).astype(np.float32))
    model.save(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert same_bits(loaded.fitted.fairness_weights, weights)
    assert same_bits(loaded.fitted.item_offsets, model.fitted.item_offsets)
    assert fitted().fitted.fairness_weights is None
