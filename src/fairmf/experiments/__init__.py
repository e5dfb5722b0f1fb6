"""The paper's tables and figures, each a file of settings (settings/*.toml) and one command: `fairmf reproduce NAME`.

    from fairmf.experiments import experiments, load_data, reproduce

    reproduce(experiments()["figure2-ml20m"], load_data("ml-1m"), "figure2", seeds=3)

`experiment` reads the settings, `data` finds the data, `kinds` has a file per kind of table or figure: which fits it is
made of, what its rows are, how it is drawn. `pieces` stores each fit's numbers the moment they are there, `running`
computes those that are missing.
"""

from fairmf.experiments.data import Data, load_data
from fairmf.experiments.estimating import Estimate, estimate, measure_speed
from fairmf.experiments.experiment import Experiment, Series, experiment, experiments
from fairmf.experiments.running import Reproduction, open_run, reproduce

__all__ = [
    "experiments",
    "experiment",
    "Experiment",
    "Series",
    "load_data",
    "Data",
    "reproduce",
    "open_run",
    "Reproduction",
    "estimate",
    "measure_speed",
    "Estimate",
]
