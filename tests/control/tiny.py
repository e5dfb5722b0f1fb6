"""A small split and a quick search for the tests of tuning. As a script it tunes into a file until it is killed."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from fairmf.control.search_space import Doubling
from fairmf.control.tuning import tune
from fairmf.data.split_methods import split_by_user
from fairmf.data.synthetic import synthetic_events
from fairmf.models.als import IALS

SPACE = {"regularization": (1e-3, 0.3), "unobserved_weight": (0.01, 0.5), "factors": Doubling(2, 8)}


def tiny_split():
    return split_by_user(synthetic_events(n_users=300, n_items=80, n_interactions=5000), heldout=50)


def tiny_tune(split, model=None, **options):
    options = {"trials": 8, "startup_trials": 4, "space": SPACE, "prune_every": 2, "progress": False} | options
    return tune(IALS(factors=4, epochs=6) if model is None else model, split, **options)


class Stuck(IALS):
    """Says so and waits in its fourth fit, so that a kill comes in the middle of a trial."""

    fits = 0

    def fit(self, *data, **options):
        Stuck.fits += 1
        if Stuck.fits == 4:
            Path(sys.argv[1] + ".stuck").touch()
            time.sleep(600)
        return super().fit(*data, **options)


Stuck.__name__ = "IALS"  # a study is of a model by name

if __name__ == "__main__":
    tiny_tune(tiny_split(), Stuck(factors=4, epochs=6), storage=sys.argv[1])
