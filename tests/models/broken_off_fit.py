"""A fit in a process of its own, to be killed or interrupted by the tests. Says "ready", then "epoch K" after each.

    python broken_off_fit.py MODEL EPOCHS RESULT [FOLDER]

With a folder it uses checkpoints. RESULT is where the model is saved when the fit is over. With the one argument
`serve` it loads all kernels and then forks a process for every such line of arguments (as JSON) it is given: quicker
than to start Python anew for every fit. Each says "pid N" first, and is waited for after the line "reap".
"""

import json
import os
import sys

import numpy as np
import scipy.sparse as sp

from fairmf import IALS, FairALS, FiADMM, Interactions

MODELS = {
    "FairALS": lambda epochs: FairALS(factors=48, epochs=epochs),
    "IALS": lambda epochs: IALS(factors=48, epochs=epochs, cg_steps=2),
    "FiADMM": lambda epochs: FiADMM(factors=32, epochs=epochs),
}


class KeepSome:
    """Keeps every third epoch (so that two states are stored), and remembers how many it kept."""

    def __init__(self, speak):
        self.kept, self.speak = 0, speak

    def on_epoch(self, progress):
        if progress.epoch % 3 == 0:
            progress.keep(progress.state)
            self.kept += 1
        progress.record["kept so far"] = self.kept
        if self.speak:
            say(f"epoch {progress.epoch}")

    def state_dict(self):
        return {"kept": self.kept}

    def load_state_dict(self, state):
        self.kept = state["kept"]


def data():
    generator = np.random.default_rng(0)
    users, items = generator.integers(0, 12_000, 60_000), (3000 * generator.random(60_000) ** 2).astype(int)
    matrix = sp.coo_array((np.ones(60_000, dtype=np.int8), (users, items)), shape=(12_000, 3000))
    return Interactions.from_csr(matrix.tocsr())


def fit(name, epochs, folder=None, speak=False):
    return MODELS[name](epochs).fit(data(), checkpoint=folder, callbacks=[KeepSome(speak)])


def main(name, epochs, result, folder=None):
    say("ready")
    model = fit(name, int(epochs), folder, speak=True)
    model.save(result)
    say(f"verdict {model.history.verdict} {len(model.history)}")


def serve():
    for name in MODELS:
        fit(name, 1)
    say("ready")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            say(f"pid {os.getpid()}")
            main(*json.loads(line))
            os._exit(0)
        assert sys.stdin.readline() == "reap\n"
        say(f"ended {os.waitpid(child, 0)[1]}")


def say(text):
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
