"""A model that only answers imports neither the cluster's code nor what a fit or other answers need."""

import json
import subprocess
import sys

import pytest
from small_models import fitted

LIBRARY = """
import fairmf
model = fairmf.load_model(sys.argv[1])
model.recommend(model.fitted.user_ids.values[:2], N=2)
"""
COMMAND = """
from fairmf.cli import main
sys.argv = ["fairmf", "recommend", *sys.argv[1:], "--json"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
"""
REPORT = """
print(json.dumps([name for name in sys.modules if name.split(".")[0] in ("fairmf", "ray", "torch", "matplotlib")]))
"""
NOT_NEEDED = (
    "ray", "torch", "matplotlib", "fairmf.distributed", "fairmf.ranking.fairrec", "fairmf.ranking.ann",
    "fairmf.models.checkpoint", "fairmf.models.fit_loop", "fairmf.models.als_cg", "fairmf.models.partial_fit",
    "fairmf.metrics", "fairmf.control", "fairmf.baselines", "fairmf.reproduce",
)  # fmt: skip


@pytest.mark.parametrize("code", [LIBRARY, COMMAND], ids=["library", "command line"])
def test_recommending_imports_little(tmp_path, code):
    model = fitted()
    model.save(tmp_path / "model")
    users = map(str, model.fitted.user_ids.values[:2])
    done = subprocess.run(
        [sys.executable, "-c", f"import json, sys\n{code}\n{REPORT}", str(tmp_path / "model"), *users],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    imported = json.loads(done.stdout.splitlines()[-1])
    assert [name for name in imported if name.startswith(NOT_NEEDED)] == []
    assert len(imported) <= 62
