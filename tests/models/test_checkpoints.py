"""A fit that is broken off and resumed ends with the bits of one that was not."""

import logging
import shutil
import threading

import numpy as np
import pytest
from conftest import paper_als, slow_values
from small_models import assert_same_fit, data

from fairmf import IALS, EarlyStopping, FairALS, FiADMM, load_model, split_by_user, synthetic_events
from fairmf.errors import BrokenFile, CannotWrite, InvalidData, InvalidParameter
from fairmf.io import container
from fairmf.models import checkpoint

MAKERS = {
    "fair_als": lambda **k: paper_als(**{"factors": 4, "epochs": 6, "fairness": 2.0} | k),
    "fair_als_defaults": lambda **k: FairALS(**{"factors": 4, "epochs": 6} | k),
    "fair_als_dense": lambda **k: paper_als(**{"factors": 4, "epochs": 6, "unobserved_weight": 1e-3} | k),
    "fair_als_exact": lambda **k: paper_als(**{"factors": 4, "epochs": 6, "solver": "cholesky"} | k),
    "fair_als_subspace": lambda **k: paper_als(
        **{"factors": 4, "epochs": 6, "solver": "subspace", "block_size": 3} | k
    ),
    "fair_als_float64": lambda **k: paper_als(**{"factors": 4, "epochs": 6, "backend": "reference"} | k),
    "ials": lambda **k: IALS(**{"factors": 4, "epochs": 6} | k),
    "fiadmm": lambda **k: FiADMM(**{"factors": 4, "epochs": 14} | k),  # rho moves from epoch 10 on
    "fiadmm_fixed": lambda **k: FiADMM(**{"factors": 4, "epochs": 6, "rho": 1e4, "gamma": 0.01} | k),
}


class PowerCut(Exception):
    pass


class CutAfter:
    """Ends a fit in the middle of an epoch's callbacks."""

    def __init__(self, epoch):
        self.epoch = epoch

    def on_epoch(self, progress):
        if progress.epoch == self.epoch:
            raise PowerCut


class Nothing(CutAfter):
    """The same callback without the accident: a resumed fit has as many callbacks, of the same names."""

    def __init__(self):
        super().__init__(None)


Nothing.__name__ = "CutAfter"


def cut(make, folder, epoch, callbacks=(), **options):
    with pytest.raises(PowerCut):
        make().fit(data(), checkpoint=folder, callbacks=[*callbacks, CutAfter(epoch)], **options)


def files(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != "lock")


@pytest.mark.parametrize(
    ("every", "name"),
    [
        *((1, name) for name in MAKERS),
        *((3, name) for name in ("fair_als", "fiadmm")),
        *slow_values(*((3, name) for name in MAKERS if name not in ("fair_als", "fiadmm"))),
    ],
)
def test_resumed_wherever_it_was_cut(name, every, tmp_path):
    make = MAKERS[name]
    whole = make().fit(data())
    for epoch in range(1, make().epochs + 1, 3):
        folder = tmp_path / str(epoch)
        cut(make, folder, epoch, checkpoint_every=every)
        resumed = make().fit(data(), checkpoint=folder, checkpoint_every=every, callbacks=[Nothing()])
        assert_same_fit(resumed, whole)


def test_a_fit_cut_again_and_again(tmp_path):
    make = MAKERS["fiadmm"]
    whole = make().fit(data())
    for epoch in range(2, 15):
        cut(make, tmp_path, epoch)
    assert files(tmp_path) == ["epoch-000012.checkpoint", "epoch-000013.checkpoint"]
    assert_same_fit(make().fit(data(), checkpoint=tmp_path, callbacks=[Nothing()]), whole)


def test_checkpoints_do_not_change_the_fit_and_the_two_newest_stay(tmp_path):
    make = MAKERS["fair_als"]
    assert_same_fit(make().fit(data(), checkpoint=tmp_path / "a" / "b"), make().fit(data()))
    assert files(tmp_path / "a" / "b") == ["epoch-000005.checkpoint", "epoch-000006.checkpoint"]
    make().fit(data(), checkpoint=tmp_path / "c", checkpoint_every=4)
    assert files(tmp_path / "c") == ["epoch-000004.checkpoint", "epoch-000006.checkpoint"]


def test_a_finished_fit_is_not_trained_again_unless_epochs_are_raised(tmp_path, monkeypatch):
    make = MAKERS["fair_als"]
    whole = make().fit(data(), checkpoint=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(FairALS, "epoch", lambda *_: pytest.fail("an epoch was run"))
        assert_same_fit(make().fit(data(), checkpoint=tmp_path), whole)
    assert_same_fit(make(epochs=9, num_threads=1).fit(data(), checkpoint=tmp_path), make(epochs=9).fit(data()))
    with pytest.raises(InvalidParameter, match="is after epoch 9, more than epochs=6 asks for"):
        make().fit(data(), checkpoint=tmp_path)


def test_tolerance_is_held_against_the_epoch_before_the_cut(tmp_path):
    def make():
        return IALS(factors=4, epochs=200, tolerance=1e-3)

    whole = make().fit(data())
    assert whole.history.verdict == "converged"
    last = len(whole.history)
    for epoch in (last, last - 1):
        cut(make, tmp_path / str(epoch), epoch)
        resumed = make().fit(data(), checkpoint=tmp_path / str(epoch), callbacks=[Nothing()])
        assert_same_fit(resumed, whole)
        again = make().fit(data(), checkpoint=tmp_path / str(epoch), callbacks=[Nothing()])
        assert_same_fit(again, whole)  # converged stays converged: no further epoch


@pytest.fixture(scope="module")
def split():
    return split_by_user(synthetic_events(n_users=400, n_items=120, n_interactions=9000), heldout=60)


def stopping(split, **options):
    return EarlyStopping(split.validation, "ndcg@10", **{"patience": 2, "every": 2} | options)


@pytest.mark.parametrize("name", ["fair_als", *slow_values("fiadmm")])
def test_early_stopping_goes_on_counting(name, split, tmp_path):
    def fit(folder=None, cut_after=None, **options):
        callbacks = [stopping(split, **options), CutAfter(cut_after)]
        return MAKERS[name](epochs=40, factors=6).fit(split.train, checkpoint=folder, callbacks=callbacks)

    whole = fit()
    assert whole.history.verdict == "stopped"
    last, best = len(whole.history), whole.history.kept_epoch
    assert best < last - 1
    for epoch in sorted({2, 3, best + 1, last - 1, last}):
        folder = tmp_path / str(epoch)
        with pytest.raises(PowerCut):
            fit(folder, epoch)
        resumed = fit(folder)
        assert_same_fit(resumed, whole)
        assert_same_fit(fit(folder), whole)  # stopped stays stopped
    with pytest.raises(InvalidParameter, match="EarlyStopping has patience 2, this one 5"):
        fit(tmp_path / str(last), patience=5)


def test_a_second_stopping_of_other_held_out_users_is_refused(split, tmp_path):
    model = MAKERS["ials"]()
    model.fit(split.train, checkpoint=tmp_path, callbacks=[stopping(split)])
    other = EarlyStopping(split.test, "ndcg@10", patience=2, every=2)
    with pytest.raises(InvalidParameter, match="EarlyStopping has held_out"):
        model.fit(split.train, checkpoint=tmp_path, callbacks=[other])


class Counter:
    """A callback with a memory of its own."""

    def __init__(self):
        self.seen = []

    def on_epoch(self, progress):
        self.seen.append(progress.epoch)
        progress.record["seen"] = len(self.seen)

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_callbacks_remember(tmp_path):
    make = MAKERS["ials"]
    whole = make().fit(data(), callbacks=[Counter()])
    cut(make, tmp_path, 5, [Counter()], checkpoint_every=2)
    resumed = Counter()
    model = make().fit(data(), checkpoint=tmp_path, callbacks=[resumed, Nothing()])
    assert resumed.seen == [1, 2, 3, 4, 5, 6]
    assert model.history.column("seen") == whole.history.column("seen")


# -- which fit is it? -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"regularization": 0.5}, "regularization is 0.005 there and 0.5 here"),
        ({"fairness": 3.0}, "fairness is 2.0 there and 3.0 here"),
        ({"random_state": 5}, "random_state is 0 there and 5 here"),
        ({"init_scale": 0.2}, "init_scale is 0.1 there"),
        ({"solver": "cholesky"}, "solver is 'eigenbasis_cg' there and 'cholesky' here"),
        ({"tolerance": 1e-9}, "tolerance is 0.0 there"),
        ({"backend": "reference"}, "backend is 'cpu' there"),
        ({"factors": 5, "cg_steps": 2}, "factors is 4 there and 5 here; cg_steps is 'auto' there and 2 here"),
    ],
)
def test_other_settings_are_another_fit(settings, message, tmp_path):
    MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidParameter, match=f"belongs to another fit: {message}"):
        MAKERS["fair_als"](**settings).fit(data(), checkpoint=tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_data_model_start_or_callbacks_are_another_fit(tmp_path):
    model = MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path)
    with pytest.raises(InvalidParameter, match=r"belongs to another fit: the data differ\. Use another folder"):
        MAKERS["fair_als"]().fit(data(weighted=True), checkpoint=tmp_path)
    with pytest.raises(InvalidParameter, match="model is 'FairALS' there and 'IALS' here"):
        MAKERS["ials"]().fit(data(), checkpoint=tmp_path)
    with pytest.raises(InvalidParameter, match="init is None there"):
        MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path, init=model)
    with pytest.raises(InvalidParameter, match=r"callbacks is \[\] there and \['Counter'\] here"):
        MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path, callbacks=[Counter()])
    with pytest.raises(InvalidParameter, match="objective_every is 1 there and 2 here"):
        MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path, objective_every=2)


def test_a_start_from_factors_is_resumed(tmp_path):
    first = MAKERS["ials"](random_state=7).fit(data())
    make = MAKERS["fair_als"]
    whole = make().fit(data(), init=first)
    cut(make, tmp_path, 4, init=first)
    pair = (first.user_factors, first.item_factors)
    assert_same_fit(make().fit(data(), checkpoint=tmp_path, init=pair, callbacks=[Nothing()]), whole)


def test_without_a_seed_the_drawn_start_is_continued(tmp_path):
    class Keep:
        def on_epoch(self, progress):
            if progress.epoch == 3:
                self.state = progress.state

    def make():
        return IALS(factors=4, epochs=6, random_state=None, solver="cholesky")

    keep = Keep()
    with pytest.raises(PowerCut):
        make().fit(data(), checkpoint=tmp_path, callbacks=[keep, CutAfter(4)])
    resumed = make().fit(data(), checkpoint=tmp_path, callbacks=[Keep(), Nothing()])
    rest = IALS(factors=4, epochs=3, solver="cholesky")
    whole = rest.fit(data(), init=(keep.state.user_factors, keep.state.item_factors))
    np.testing.assert_array_equal(resumed.user_factors, whole.user_factors)


# -- damage -----------------------------------------------------------------------------------------------------------


def damage(path):
    raw = bytearray(path.read_bytes())
    raw[-5] ^= 4
    path.write_bytes(raw)


def test_a_damaged_newest_is_passed_over(tmp_path, caplog):
    make = MAKERS["fair_als"]
    whole = make().fit(data())
    cut(make, tmp_path, 6)
    damage(tmp_path / "epoch-000005.checkpoint")
    with caplog.at_level(logging.INFO, logger="fairmf"):
        resumed = make().fit(data(), checkpoint=tmp_path, callbacks=[Nothing()])
    assert "epoch-000005.checkpoint cannot be read as a fairmf checkpoint: array" in caplog.text
    assert "resuming after epoch 4" in caplog.text
    assert_same_fit(resumed, whole)
    assert files(tmp_path) == ["epoch-000005.checkpoint", "epoch-000006.checkpoint"]
    for name in files(tmp_path):
        container.read(tmp_path / name, checkpoint.CHECKPOINT)


def test_a_damaged_one_beyond_what_is_written_next_does_not_outlive_it(tmp_path):
    make = MAKERS["fair_als"]
    cut(make, tmp_path, 5)
    shutil.copy(tmp_path / "epoch-000004.checkpoint", tmp_path / "epoch-000900.checkpoint")
    damage(tmp_path / "epoch-000900.checkpoint")
    cut(make, tmp_path, 6)
    assert files(tmp_path) == ["epoch-000004.checkpoint", "epoch-000005.checkpoint"]


def test_without_any_good_one_nothing_is_trained_or_lost(tmp_path):
    make = MAKERS["fair_als"]
    make().fit(data(), checkpoint=tmp_path)
    for name in files(tmp_path):
        damage(tmp_path / name)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    with pytest.raises(
        BrokenFile, match=r"None of the checkpoints in .* can be read. To train from the beginning, empty"
    ):
        make().fit(data(), checkpoint=tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_leftovers_of_a_killed_writer_are_removed_and_nothing_else(tmp_path):
    cut(MAKERS["ials"], tmp_path, 3)
    whole = (tmp_path / "epoch-000002.checkpoint").read_bytes()
    for number, kept in enumerate((0, 5, 30, 500, len(whole))):
        (tmp_path / f"epoch-000003.checkpoint.0a1b2c3d4e{number:02}.tmp").write_bytes(whole[:kept])
    mine = ["notes.tmp", "epoch-notes.checkpoint", "epoch-000001.tmp", "epoch-3.checkpoint.0a1b2c3d4e5f.tmp"]
    mine += ["epoch-000003.checkpoint.0a1b2c3d4e5f.tmp", "epoch-000001.checkpoint"]  # as ours are called, but not ours
    for name in mine:
        (tmp_path / name).write_bytes(b"mine" if name.endswith("checkpoint") else b"mine, and not a checkpoint")
    (tmp_path / "epoch-000004.checkpoint.0a1b2c3d4eff.tmp").symlink_to(tmp_path / "notes.tmp")
    MAKERS["ials"]().fit(data(), checkpoint=tmp_path, callbacks=[Nothing()])
    names = ["epoch-000005.checkpoint", "epoch-000006.checkpoint", "epoch-000004.checkpoint.0a1b2c3d4eff.tmp", *mine]
    assert files(tmp_path) == sorted(names)


def test_no_checkpoint_is_written_through_a_link_that_leads_out_of_the_folder(tmp_path):
    (tmp_path / "precious").write_text("mine")
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    cut(MAKERS["ials"], folder, 2)
    (folder / "epoch-000002.checkpoint").symlink_to(tmp_path / "precious")
    with pytest.raises(CannotWrite, match="a link to a file outside of the folder"):
        MAKERS["ials"]().fit(data(), checkpoint=folder, callbacks=[Nothing()])
    assert (tmp_path / "precious").read_text() == "mine"


def test_a_checkpoint_is_no_model_and_the_other_way_round(tmp_path):
    model = MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path)
    with pytest.raises(BrokenFile, match="it is a fairmf checkpoint"):
        load_model(tmp_path / "epoch-000006.checkpoint")
    for name in files(tmp_path):
        model.save(tmp_path / name)
    with pytest.raises(BrokenFile, match="it is a fairmf model"):
        MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path)


@pytest.mark.parametrize("part", ["state", "progress", "identity", "versions", "kept"])
def test_forged_checkpoints_are_refused(part, tmp_path):
    MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path)
    (tmp_path / "epoch-000005.checkpoint").unlink()
    path = tmp_path / "epoch-000006.checkpoint"
    content, arrays = container.read(path, checkpoint.CHECKPOINT)
    content[part] = [1] if part != "kept" else {"effort": "x"}
    container.write(path, checkpoint.CHECKPOINT, content, arrays)
    with pytest.raises(BrokenFile):
        MAKERS["fair_als"]().fit(data(), checkpoint=tmp_path)


# -- the folder -------------------------------------------------------------------------------------------------------


def test_one_fit_at_a_time(tmp_path):
    inside, done = threading.Event(), threading.Event()

    class Wait:
        def on_epoch(self, progress):
            inside.set()
            assert done.wait(60)

    model = MAKERS["fair_als_exact"](epochs=1, backend="reference")
    thread = threading.Thread(target=lambda: model.fit(data(), checkpoint=tmp_path, callbacks=[Wait()]))
    thread.start()
    try:
        assert inside.wait(60)
        with pytest.raises(InvalidParameter, match=r"Another fit is using the checkpoint folder .*: give each its own"):
            MAKERS["ials"]().fit(data(), checkpoint=tmp_path)
    finally:
        done.set()
        thread.join()
    assert files(tmp_path) == ["epoch-000001.checkpoint"]


def test_bad_arguments(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CannotWrite, match="file cannot be used for checkpoints: File exists"):
        MAKERS["ials"]().fit(data(), checkpoint=tmp_path / "file")
    for every in (0, 1.5, True, None):
        with pytest.raises(InvalidParameter, match="'checkpoint_every' parameter of fit must be an integer >= 1"):
            MAKERS["ials"]().fit(data(), checkpoint=tmp_path, checkpoint_every=every)


def test_records_that_cannot_be_stored_are_named(tmp_path):
    class Odd:
        def on_epoch(self, progress):
            progress.record["model"] = progress.model

    with pytest.raises(
        InvalidData, match=r"record or memory cannot be stored in a checkpoint: it is a value of type .*IALS"
    ):
        MAKERS["ials"]().fit(data(), checkpoint=tmp_path, callbacks=[Odd()])


def test_other_libraries_are_mentioned(tmp_path, caplog, monkeypatch):
    MAKERS["ials"](epochs=2).fit(data(), checkpoint=tmp_path)
    from fairmf.models import checkpoint

    now = checkpoint.versions() | {"numpy": "99.0"}
    monkeypatch.setattr(checkpoint, "versions", lambda: now)
    MAKERS["ials"]().fit(data(), checkpoint=tmp_path)
    assert f"numpy {np.__version__} then, 99.0 now" in caplog.text


def test_a_fit_with_other_fairness_weights_is_another_fit(tmp_path):
    weights = np.linspace(0, 3, data().n_items)
    make = MAKERS["fair_als"]
    cut(make, tmp_path, 3, fairness_weights=weights)
    with pytest.raises(InvalidParameter, match="fairness_weights"):
        make().fit(data(), checkpoint=tmp_path, callbacks=[Nothing()])
    resumed = make().fit(data(), checkpoint=tmp_path, callbacks=[Nothing()], fairness_weights=weights)
    assert_same_fit(resumed, make().fit(data(), fairness_weights=weights, callbacks=[Nothing()]))
