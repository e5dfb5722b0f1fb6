"""Make the files of tests/saved, one of each kind that fairmf writes, with the version whose files must load.

`python tests/saved/make.py` writes them beside itself. Later versions must read what is there: they do not run it.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

import fairmf

HERE = Path(__file__).resolve().parent
SIZES = {"n_users": 60, "n_items": 40, "n_interactions": 700, "random_state": 3}
SETTINGS = {"factors": 4, "epochs": 3}


def answers(model, users):
    """The lists of some users, to compare with."""
    ids, scores = model.recommend(users, N=5)
    return [ids.tolist(), np.asarray(scores, dtype=float).tolist()]


def main():
    """Write all of them, and what they answer."""
    expected = {}
    data = fairmf.synthetic(**SIZES)
    users = data.user_ids.values[:4]
    frame = {"user": [f"u{k % 23}" for k in range(300)], "item": [f"i{(k * 7) % 31}" for k in range(300)]}
    named = fairmf.Interactions.from_frame(pa.table(frame))
    models = {
        "fair_als": fairmf.FairALS(**SETTINGS).fit(data, fairness_weights=np.linspace(0.5, 2.0, data.n_items)),
        "ials": fairmf.IALS(**SETTINGS).fit(data.reweighted("log")),
        "fiadmm": fairmf.FiADMM(**SETTINGS).fit(data),
        "popularity": fairmf.Popularity().fit(data),
    }
    for name, model in models.items():
        model.save(HERE / f"{name}.fairmf")
        expected[name] = answers(model, users)
    model = fairmf.FairALS(**SETTINGS).fit(named)
    model.save(HERE / "text_ids.fairmf")
    expected["text_ids"] = answers(model, named.user_ids.values[:4])
    model.save(HERE / "no_histories.fairmf", interactions=False)
    split = fairmf.split_by_user(data, 10, protocol="seeded")
    shutil.rmtree(HERE / "split", ignore_errors=True)
    split.save(HERE / "split")
    expected["split"] = [split.train.fingerprint(), split.test.fold_in.fingerprint(), split.test.targets.fingerprint()]
    shutil.rmtree(HERE / "checkpoints", ignore_errors=True)
    begun = fairmf.FairALS(factors=4, epochs=2).fit(data, checkpoint=HERE / "checkpoints", settle=False)
    expected["seconds"] = begun.history.column("seconds")
    whole = fairmf.FairALS(factors=4, epochs=5).fit(data)
    expected["checkpoints"] = (whole.user_factors @ whole.item_factors.T)[:3, :5].astype(float).tolist()
    index = models["ials"].to_ann()
    index.save(HERE / "index.ann")
    expected["index"] = index.search(models["ials"].user_factors[:3], 5)[0].tolist()
    (HERE / "events.csv").write_text(
        "user,item\n" + "".join(f"{u},{i}\n" for u, i in zip(*frame.values(), strict=True))
    )
    program = [sys.executable, "-c", "from fairmf.cli import main; main()"]
    flags = ["-o", "run.fairmf", "--factors", "3", "--epochs", "2"]
    subprocess.run([*program, "fit", "events.csv", *flags], cwd=HERE, check=True)
    expected["record"] = answers(fairmf.load_model(HERE / "run.fairmf"), ["u1", "u2"])
    (HERE / "run.fairmf").unlink()
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
