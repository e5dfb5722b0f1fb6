"""Test that one line says why the cuda backend cannot run, and that models trained with it answer on the CPU."""

import logging
import re
import sys
from types import SimpleNamespace

import pytest

from fairmf import FairALS, load_model, synthetic
from fairmf.backends import registry
from fairmf.backends.registry import auto_backend, get_backend
from fairmf.errors import InvalidParameter, MissingDependency


class DriverError(Exception):
    """Stands for CUDARuntimeError."""


def card(count=1, capability="90", error=None):
    """A CuPy that reports these devices."""

    def devices_found():
        if error is not None:
            raise DriverError(error)
        return count

    runtime = SimpleNamespace(
        CUDARuntimeError=DriverError, getDeviceCount=devices_found, getDeviceProperties=lambda _: {"name": b"Old Card"}
    )
    device = SimpleNamespace(compute_capability=capability, id=0)
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=lambda: device))


@pytest.mark.parametrize(
    ("cupy", "line"),
    [
        (card(error="cudaErrorInsufficientDriver: too old"), "no usable driver (cudaErrorInsufficientDriver)"),
        (card(error="cudaErrorNoDevice: none"), "no usable driver (cudaErrorNoDevice)"),
        (card(count=0), "no NVIDIA device on this machine: use backend='cpu'"),
        (card(capability="61"), "needs compute capability 7.0; Old Card has 6.1"),
    ],
)
def test_what_is_missing(monkeypatch, cupy, line):
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    assert line in registry.what_is_missing()
    with pytest.raises(MissingDependency):
        registry.require_device()


@pytest.mark.parametrize("capability", ["70", "90", "120"])
def test_a_device_that_can_be_used(monkeypatch, capability):
    monkeypatch.setitem(sys.modules, "cupy", card(capability=capability))
    assert registry.what_is_missing() is None


def test_without_cupy_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert re.search(r'pip install "(fairmf\[cuda\]|cupy-cuda12x)', registry.what_is_missing())


def test_auto_takes_a_device_where_there_is_one_and_it_pays(monkeypatch):
    monkeypatch.setattr(registry, "what_is_missing", lambda: None)
    assert auto_backend(registry.PAYS) == "cuda"
    assert auto_backend(registry.PAYS / 2) == "cpu"
    monkeypatch.setattr(registry, "what_is_missing", lambda: "no device")
    assert auto_backend(1e12) == "cpu"


def test_auto_on_small_data_is_the_cpu():
    data = synthetic(200, 60, 2000)
    model = FairALS(factors=4, epochs=2, backend="auto").fit(data, progress=False)
    plain = FairALS(factors=4, epochs=2).fit(data, progress=False)
    assert model.fitted.settings["backend"] == "cpu"
    assert (model.user_factors == plain.user_factors).all()


def test_float16_needs_a_device():
    with pytest.raises(InvalidParameter, match="factor_dtype='float16' needs backend='cuda'"):
        FairALS(factors=4, factor_dtype="float16").fit(synthetic(50, 20, 300))


def test_a_model_trained_on_a_device_answers_without_one(tmp_path, monkeypatch, caplog):
    model = FairALS(factors=4, epochs=2).fit(synthetic(200, 60, 2000), progress=False)
    expected = model.recommend(model.fitted.user_ids.values[:5], N=5)[0]
    model.backend = model.fitted.settings["backend"] = "cuda"
    model.factor_dtype = model.fitted.settings["factor_dtype"] = "float16"
    monkeypatch.setattr("fairmf.models.base.IterativeModel._backend", lambda _: get_backend("cpu"))
    model.save(tmp_path / "m.fairmf")
    monkeypatch.undo()
    monkeypatch.setattr(registry, "what_is_missing", lambda: "no device here")
    with caplog.at_level(logging.WARNING, logger="fairmf"):
        loaded = load_model(tmp_path / "m.fairmf")
    assert "using 'cpu' here: no device here" in caplog.text
    assert loaded.backend == "cpu"
    assert (loaded.recommend(loaded.fitted.user_ids.values[:5], N=5)[0] == expected).all()
    assert loaded.with_fairness(2.0).user_factors.shape == model.user_factors.shape
