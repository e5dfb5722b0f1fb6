"""Ctrl-C at awkward moments, in this process: what is returned is always one whole epoch."""

import pytest
from small_models import assert_same_fit, data, same_bits

from fairmf import FairALS, FiADMM
from fairmf.io import container


class InterruptAt:
    """Raises KeyboardInterrupt in the callbacks of an epoch."""

    def __init__(self, epoch):
        self.epoch, self.seen = epoch, []

    def on_epoch(self, progress):
        self.seen.append(progress.epoch)
        progress.record["count"] = len(self.seen)
        if progress.epoch == self.epoch:
            raise KeyboardInterrupt

    def state_dict(self):
        return {"seen": self.seen}  # the list itself, which goes on growing: the loop has to take a copy

    def load_state_dict(self, state):
        self.seen = state["seen"]


def make(epochs=6):
    return FairALS(factors=4, epochs=epochs)


def test_in_a_callback(caplog):
    model = make().fit(data(), callbacks=[InterruptAt(4)])
    assert (model.history.verdict, model.history.reason) == ("interrupted", "Ctrl-C")
    assert (len(model.history), model.history.kept_epoch) == (3, 3)
    shorter = make(3).fit(data())
    assert same_bits(model.user_factors, shorter.user_factors)  # the last half-step was done as well
    assert "interrupted: the model keeps epoch 3" in caplog.text


def test_in_an_epoch(monkeypatch, tmp_path):
    real = FiADMM.epoch

    def epoch(self, problem, state):
        after = real(self, problem, state)
        if state.epochs_done == 4:
            raise KeyboardInterrupt
        return after

    def fresh():
        return FiADMM(factors=4, epochs=8)

    with monkeypatch.context() as patch:
        patch.setattr(FiADMM, "epoch", epoch)
        model = fresh().fit(data(), checkpoint=tmp_path, checkpoint_every=100)
    assert len(model.history) == 4
    # Not due, but written all the same: nothing that was trained is lost.
    assert [path.name for path in tmp_path.glob("epoch*")] == ["epoch-000004.checkpoint"]
    assert_same_fit(fresh().fit(data(), checkpoint=tmp_path), fresh().fit(data()))


def test_while_a_checkpoint_is_written(monkeypatch, tmp_path):
    real, calls = container.write, []

    def write(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(container, "write", write)
        model = make().fit(data(), checkpoint=tmp_path)
    assert (model.history.verdict, len(model.history), len(calls)) == ("interrupted", 3, 4)
    assert_same_fit(make().fit(data(), checkpoint=tmp_path), make().fit(data()))


def test_memory_of_callbacks_is_that_of_the_stored_epoch(tmp_path):
    make().fit(data(), checkpoint=tmp_path, checkpoint_every=100, callbacks=[InterruptAt(4)])
    resumed = make().fit(data(), checkpoint=tmp_path, callbacks=[InterruptAt(None)])
    assert resumed.history.column("count") == [1, 2, 3, 4, 5, 6]
    assert_same_fit(resumed, make().fit(data(), callbacks=[InterruptAt(None)]))


def test_before_the_first_epoch_there_is_nothing_to_return():
    model = make()
    with pytest.raises(KeyboardInterrupt):
        model.fit(data(), callbacks=[InterruptAt(1)])
    assert model._fitted is None


def test_a_second_one_while_finishing_is_not_caught(monkeypatch, tmp_path):
    def finish(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(FairALS, "finish", finish)
        with pytest.raises(KeyboardInterrupt):
            make().fit(data(), checkpoint=tmp_path, callbacks=[InterruptAt(4)])
    resumed = make().fit(data(), checkpoint=tmp_path, callbacks=[InterruptAt(None)])
    assert_same_fit(resumed, make().fit(data(), callbacks=[InterruptAt(None)]))
