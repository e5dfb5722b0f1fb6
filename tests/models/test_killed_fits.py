"""SIGKILL at random moments: nothing corrupt is ever taken for good, and every resumed fit ends with the same bits."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import broken_off_fit
import pytest
from conftest import slow_values
from small_models import assert_same_fit

from fairmf import FiADMM, load_model
from fairmf.io import container
from fairmf.models.checkpoint import CHECKPOINT

PROGRAM = Path(broken_off_fit.__file__)
KILLS = int(os.environ.get("FAIRMF_KILLS", "40"))  # more find rarer faults: each run chooses other moments
EPOCHS = 24


def started(*arguments):
    process = subprocess.Popen([sys.executable, PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def newest(folder):
    """The epoch of the newest checkpoint. All there are must be whole, and no more than the two newest and a victim."""
    stored = [path for path in folder.glob("*") if re.fullmatch(r"epoch-\d+\.checkpoint", path.name)]
    for path in stored:
        content, _ = container.read(path, CHECKPOINT)
        assert content["progress"]["epoch"] == int(path.stem[6:])
    assert len(stored) <= 3  # killed between writing the new one and removing the oldest
    return max((int(path.stem[6:]) for path in stored), default=0)


class Server:
    """Fits in processes of their own, forked from one that has everything loaded."""

    def __init__(self):
        command = [sys.executable, PROGRAM, "serve"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)
        assert self.line() == "ready"

    def line(self):
        return self.process.stdout.readline().strip()

    def send(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def run_until_killed(self, rng, *arguments):
        """True if the fit was killed, False if it came to its end before.

        The moment is random but follows the fit, so that it is as random on a busy machine: some epochs, and then a
        part of the time from one epoch to the next, which is spent in writing and in the epoch itself.
        """
        self.send(json.dumps([str(argument) for argument in arguments]))
        victim = int(self.line().removeprefix("pid "))
        assert self.line() == "ready"
        times = [time.monotonic()]
        for _ in range(rng.randrange(7)):
            times.append(time.monotonic())
            if not self.line().startswith("epoch"):
                break
        pause = time.monotonic() - times[-1] if len(times) > 1 else 0.1
        time.sleep(rng.uniform(0.0, 1.2) * pause)
        os.kill(victim, signal.SIGKILL)  # not reaped before the next line, so it is still this process
        self.send("reap")
        while not (line := self.line()).startswith("ended"):
            assert line
        status = int(line.removeprefix("ended "))
        assert status in (0, signal.SIGKILL)
        return status == signal.SIGKILL

    def close(self):
        self.process.communicate()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.close()


@pytest.mark.slow
def test_fits_that_are_killed_again_and_again(server, tmp_path):
    rng = random.Random(time.time_ns())
    names = list(broken_off_fit.MODELS)
    whole = {name: broken_off_fit.fit(name, EPOCHS) for name in names}
    counts = Counter()
    number = 0
    while counts["kills"] < KILLS:
        name = names[number % len(names)]
        folder, result = tmp_path / f"fit {number}", tmp_path / f"model {number}"
        epoch = 0
        while server.run_until_killed(rng, name, EPOCHS, result, folder):
            counts["kills"] += 1
            counts["while writing a checkpoint"] += any(folder.glob("*.tmp"))
            counts["while writing the model"] += any(tmp_path.glob("model*.tmp"))
            now = newest(folder) if folder.exists() else 0
            assert now >= epoch  # what was reached is never lost again
            counts["before the first checkpoint"] += now == 0
            counts["after the last checkpoint"] += now == EPOCHS
            epoch = now
            assert not result.exists() or load_model(result)
            for leftover in tmp_path.glob("model*.tmp"):
                leftover.unlink()
        assert newest(folder) == EPOCHS
        assert not list(folder.glob("*.tmp"))
        assert_same_fit(load_model(result), whole[name])
        counts["fits that came to their end"] += 1
        number += 1
    between = counts["kills"] - counts["before the first checkpoint"] - counts["after the last checkpoint"]
    sys.stdout.write(f"{dict(counts)}, between first and last checkpoint: {between}\n")
    assert between >= KILLS // 3
    assert counts["while writing a checkpoint"] >= 1


@pytest.mark.parametrize("checkpoint", [*slow_values(False), True])
def test_ctrl_c_returns_the_last_complete_epoch(checkpoint, tmp_path, monkeypatch):
    folder = [tmp_path / "checkpoints"] if checkpoint else []
    process = started("FiADMM", 100_000, tmp_path / "model", *folder)
    while process.stdout.readline() != "epoch 5\n":
        pass
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    verdict, epochs = re.search(r"verdict (\w+) (\d+)", output).groups()
    assert verdict == "interrupted"
    assert 4 <= int(epochs) < 100_000  # the signal may come before epoch 5 is over, of which it was told within
    model = load_model(tmp_path / "model")
    assert model.history.reason == "Ctrl-C"
    shorter = broken_off_fit.fit("FiADMM", int(epochs))
    assert model.user_factors.tobytes() == shorter.user_factors.tobytes()
    assert model.history.kept_epoch == int(epochs) // 3 * 3
    if checkpoint:
        real, run = FiADMM.epoch, []
        monkeypatch.setattr(FiADMM, "epoch", lambda *how: run.append(how) or real(*how))
        resumed = broken_off_fit.fit("FiADMM", int(epochs) + 1, *folder)
        assert len(run) == 1
        assert newest(folder[0]) == len(resumed.history) == int(epochs) + 1
