"""A model that only answers imports neither the cluster's code nor what other answers need."""

import json
import subprocess
import sys

from small_models import fitted

CODE = """
import json, sys
import fairmf
model = fairmf.load_model(sys.argv[1])
model.recommend(model.fitted.user_ids.values[:2] if model.fitted.user_ids is not None else [0, 1], N=2)
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "fairmf"]))
"""
NOT_NEEDED = ("fairmf.distributed", "fairmf.ranking.fairrec", "fairmf.ranking.ann", "fairmf.models.checkpoint")


def test_recommending_imports_little(tmp_path):
    fitted().save(tmp_path / "model")
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path / "model")], capture_output=True, text=True, check=True
    )
    imported = json.loads(done.stdout)
    assert [name for name in imported if name.startswith(NOT_NEEDED)] == []
    assert len(imported) <= 60
