"""Autoencoders in files: loaded ones answer with the same bits, and files that do not fit are refused."""

import numpy as np
import pytest
from conftest import random_rows

from fairmf import MultVAE, RecVAE, fit_offsets, load_model
from fairmf.baselines.network_file import NETWORK
from fairmf.data.ids import Ids
from fairmf.data.interactions import Interactions
from fairmf.errors import BrokenFile, InvalidData, InvalidParameter, MissingHistories
from fairmf.io import container

torch = pytest.importorskip("torch", reason="needs PyTorch: make test-slow installs it")
pytestmark = pytest.mark.slow  # with PyTorch, which the quick tests do without

SIZES = {"factors": 3, "hidden": 6, "epochs": 2, "batch_size": 16, "num_threads": 1}


def data(named, weighted=False):
    users, items = (Ids([f"u{i}" for i in range(30)]), Ids(np.arange(20) * 3)) if named else (None, None)
    return Interactions(random_rows(30, 20, weighted=weighted), 20, users, items)


@pytest.fixture(params=[MultVAE, RecVAE])
def make(request):
    return request.param


@pytest.fixture
def stored(tmp_path, make):
    model = make(**SIZES).fit(data(named=True))
    model.save(tmp_path / "model")
    return model, tmp_path / "model"


@pytest.mark.parametrize("named", [True, False])
def test_a_loaded_model_answers_with_the_same_bits(tmp_path, make, named, weighted):
    model = make(**SIZES).fit(data(named, weighted))
    model.save(tmp_path / "model")
    loaded = make.load(tmp_path / "model")
    assert loaded.get_params() == model.get_params()
    for name in ("user_factors", "item_factors"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
    who = ["u3", "u4"] if named else [3, 4]
    for ours, theirs in zip(loaded.recommend(who, N=7), model.recommend(who, N=7), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    new = data(named, weighted).take_users(np.arange(5))
    np.testing.assert_array_equal(loaded.fold_in(new), model.fold_in(new))
    assert loaded.history == model.history
    np.testing.assert_array_equal(loaded.fitted.popularity, model.fitted.popularity)


def test_learned_offsets_are_kept(stored, make):
    model, path = stored
    fair = fit_offsets(model, min_exposure=0.5, K=5).model
    assert np.abs(fair.fitted.item_offsets).max() > 0
    fair.save(path)
    loaded = make.load(path)
    for ours, theirs in zip(loaded.recommend(["u3"]), fair.recommend(["u3"]), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_without_histories(stored, make):
    model, path = stored
    model.save(path, interactions=False)
    loaded = make.load(path)
    with pytest.raises(MissingHistories):
        loaded.recommend(["u3"])
    assert loaded.recommend(["u3"], filter_already_liked_items=False)[0].shape == (1, 10)


def test_a_file_of_another_kind_is_named(stored, make):
    _, path = stored
    other = RecVAE if make is MultVAE else MultVAE
    with pytest.raises(BrokenFile, match=f"it holds a {make.__name__}, not a {other.__name__}"):
        other.load(path)
    with pytest.raises(BrokenFile, match="it is a fairmf autoencoder"):
        load_model(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c, a: a.pop("network.decoder.bias"), r"no decoder\.bias of 20 finite numbers"),
        (lambda c, a: a.update({"network.decoder.bias": np.full(20, np.nan, np.float32)}), "20 finite numbers"),
        (lambda c, a: a.update(user_factors=np.zeros((30, 2), np.float32)), "no user_factors"),
        (lambda c, a: a.pop("popularity"), "no popularity"),
        (lambda c, a: a.update(item_offsets=np.zeros(19, np.float32)), "item_offsets are not a finite number for each"),
        (lambda c, a: a.update(more=np.zeros(3)), "array 'more' that does not belong there"),
        (lambda c, a: c.pop("ids"), "other parts than an autoencoder's"),
        (lambda c, a: c.update(interactions=3), "'interactions' in its document is of the wrong kind"),
        (lambda c, a: c["settings"].update(hidden=7), "its network has no"),
        (lambda c, a: c["settings"].update(hidden=0), "must be an integer >= 1"),
        (lambda c, a: c["settings"].update(power=2), "has no setting 'power'"),
        (lambda c, a: a.update({"interactions.indices": a["interactions.indices"] + 100}), "cannot be read"),
    ],
)
def test_what_does_not_fit_together_is_refused(stored, make, change, message):
    _, path = stored
    content, arrays = container.read(path, NETWORK)
    change(content, arrays)
    container.write(path, NETWORK, content, arrays)
    with pytest.raises(BrokenFile, match=message):
        make.load(path)


def test_a_flipped_byte_is_found(stored, make):
    _, path = stored
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(BrokenFile, match="checksum"):
        make.load(path)


def test_numbers_that_are_not_finite_are_not_saved(stored):
    model, path = stored
    before = path.read_bytes()
    model._network["decoder.bias"][0] = np.inf
    with pytest.raises(InvalidData, match=r"network\.decoder\.bias hold numbers that are not finite"):
        model.save(path)
    assert path.read_bytes() == before


def test_there_is_no_sensitivity(stored):
    with pytest.raises(InvalidParameter, match="has no dial"):
        stored[0].save(stored[1], user_sensitivity=True)
