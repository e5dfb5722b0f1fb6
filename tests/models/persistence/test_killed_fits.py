"""SIGKILL at random moments: nothing corrupt is ever taken for good, and every resumed fit ends with the same bits."""

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
from small_models import assert_same_fit

from fairmf import load_model
from fairmf.models.persistence import checkpoints, container

PROGRAM = Path(broken_off_fit.__file__)
KILLS, EPOCHS = 60, 24


def started(*arguments):
    process = subprocess.Popen([sys.executable, PROGRAM, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def newest(folder):
    """The epoch of the newest checkpoint. All there are must be whole, and no more than the two newest and a victim."""
    stored = [path for path in folder.glob("*") if re.fullmatch(r"epoch-\d+\.checkpoint", path.name)]
    for path in stored:
        content, _ = container.read(path, checkpoints.CHECKPOINT)
        assert content["progress"]["epoch"] == int(path.stem[6:])
    assert len(stored) <= 3  # killed between writing the new one and removing the oldest
    return max((int(path.stem[6:]) for path in stored), default=0)


def run_until_killed(name, folder, result, rng):
    """True if the process was killed, False if it came to its end before.

    The moment is random but follows the fit, so that it is as random on a busy machine: some epochs, and then a part of
    the time from one epoch to the next, which is spent in writing and in the epoch itself.
    """
    process = started(name, EPOCHS, result, folder)
    began = [time.monotonic()]
    for _ in range(rng.randrange(7)):
        line = process.stdout.readline()
        began.append(time.monotonic())
        if not line.startswith("epoch"):
            break
    pause = began[-1] - began[-2] if len(began) > 2 else 0.5
    try:
        process.communicate(timeout=rng.uniform(0.0, 1.2) * pause)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    assert process.returncode == 0
    return False


@pytest.mark.slow
def test_sixty_kills(tmp_path):
    rng = random.Random(time.time_ns())
    names = list(broken_off_fit.MODELS)
    whole = {name: broken_off_fit.fit(name, EPOCHS) for name in names}
    counts = Counter()
    number = 0
    while counts["kills"] < KILLS:
        name = names[number % len(names)]
        folder, result = tmp_path / f"fit {number}", tmp_path / f"model {number}"
        epoch = 0
        while run_until_killed(name, folder, result, rng):
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


@pytest.mark.parametrize("checkpoint", [False, True])
def test_ctrl_c_returns_the_last_complete_epoch(checkpoint, tmp_path):
    folder = [tmp_path / "checkpoints"] if checkpoint else []
    process = started("FiADMM", 100_000, tmp_path / "model", *folder)
    while process.stdout.readline() != "epoch 5\n":
        pass
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    verdict, epochs = re.search(r"verdict (\w+) (\d+)", output).groups()
    assert verdict == "interrupted"
    assert 5 <= int(epochs) < 100_000
    model = load_model(tmp_path / "model")
    assert model.history.reason == "Ctrl-C"
    shorter = broken_off_fit.fit("FiADMM", int(epochs))
    assert model.user_factors.tobytes() == shorter.user_factors.tobytes()
    assert model.history.kept_epoch == int(epochs) // 3 * 3
    if checkpoint:
        resumed = started("FiADMM", 100_000, tmp_path / "model", *folder)
        assert int(resumed.stdout.readline().split()[1]) == int(epochs) + 1
        resumed.kill()
        resumed.communicate()
        assert newest(folder[0]) >= int(epochs)
