"""Small data and small experiments of every kind. As a script it runs one and stops in a piece, to be killed there."""

import sys
import time
from pathlib import Path

from fairmf import split_by_user, synthetic_events
from fairmf.reproduce.data import load_data
from fairmf.reproduce.measure import measure
from fairmf.reproduce.run import reproduce
from fairmf.reproduce.spec import read_experiment

HEAD = 'title = "{title}"\nabout = "Small."\nkind = "{kind}"\ndata = "ml-20m"\nseeds = 2\nmetrics = {metrics}\n'
WEIGHTS = "factors = 4, epochs = 3"
IALS = f'[[series]]\nname = "iALS"\nmodel = "ials"\nsettings = {{ {WEIGHTS} }}\n'
FAIR = f'[[series]]\nname = "fair"\nmodel = "fair-als"\nsettings = {{ {WEIGHTS} }}\n'
ADMM = f'[[series]]\nname = "admm"\nmodel = "fiadmm"\nsettings = {{ {WEIGHTS} }}\n'
METRICS = '["recall@5", "ndcg@10", "gini@5"]'
TABLE = (
    '[options]\nselect = "ndcg@10"\nbaseline = "iALS"\n[[series]]\nname = "Popularity"\nmodel = "popularity"\n'
    'paper = { "recall@5" = 0.5 }\ntolerance = 0.1\n' + IALS + "grid = { regularization = [0.001, 0.1, 3.0] }\n" + FAIR
)
# On data without settings of their own there would be 64 factors.
STAND_IN = "[stand_ins.all]\nsettings = { factors = 4 }\n"
SMALL = {
    "ranking_table": HEAD.format(title="T", kind="ranking_table", metrics=METRICS) + TABLE,
    "fronts": HEAD.format(title="F: fronts", kind="fronts", metrics='["recall@5", "ndcg@10", "gini@5", "gini@10"]')
    + FAIR
    + "grid = { fairness = [0.5, 2.0] }\nshares = [0.0, 0.5]\nfairrec = { K = 20, order = 'allocation' }\n"
    + IALS
    + "dials = [0.0, 1.0]\n",
    "exposure_curves": HEAD.format(title="E", kind="exposure_curves", metrics=METRICS)
    + "[options]\nK = [5, 10]\nlengths = [2, 5, 10]\n"
    + FAIR
    + "grid = { fairness = [0.5, 2.0] }\n",
    "epoch_time": HEAD.format(title="S", kind="epoch_time", metrics="[]") + IALS + "grid = { factors = [2, 4] }\n",
    "learning": HEAD.format(title="L", kind="learning", metrics='["ndcg@10", "gini@5"]')
    + "[options]\nevery = 2\n"
    + ADMM,
    "residuals": HEAD.format(title="R", kind="residuals", metrics="[]") + ADMM + "grid = { rho = [10.0, 1e4] }\n",
}


def small(kind, **replaced):
    """A small experiment of a kind; words of its text may be replaced."""
    text = SMALL[kind] + STAND_IN
    for old, new in replaced.items():
        text = text.replace(old, new)
    return read_experiment(kind, text)


def small_split():
    return split_by_user(synthetic_events(n_users=200, n_items=60, n_interactions=3000), heldout=40)


def stored(folder):
    """The data of an experiment, from the folder of a split."""
    small_split().save(folder)
    return load_data(str(folder))


def stuck_in(number, folder):
    """A measure that says so and waits in the piece of that number, so that a kill comes in the middle of it."""
    done = []

    def slow(piece, split):
        done.append(piece)
        if len(done) == number:
            Path(folder, "stuck").touch()
            time.sleep(600)
        return measure(piece, split)

    return slow


if __name__ == "__main__":
    split, out, piece = sys.argv[1:]
    reproduce(small("ranking_table"), load_data(split), out, progress=False, measure=stuck_in(int(piece), out))
