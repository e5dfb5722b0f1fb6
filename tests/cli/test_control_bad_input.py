"""Bad input of the verbs that control, compare and export, and of dials: one clear line and a documented exit code."""

import pytest

CASES = [
    # verb and arguments, exit code, words of the one line
    ("tradeoff absent.fairmf {split}", 1, "There is no model absent.fairmf"),
    ("tradeoff {split} {split}", 1, "is a split, not a model"),
    ("tradeoff {events} {split}", 1, "events.csv"),
    ("tradeoff {model} absent", 1, "absent"),
    ("tradeoff {model} {events}", 1, "events.csv"),
    ("tradeoff {model} {split} --fairness 0,x", 1, "--fairness takes numbers"),
    ("tradeoff {model} {split} --fairness 0,-1", 1, "-1"),
    ("tradeoff {model} {split} --points 1", 2, "--points"),
    ("tradeoff {model} {split} --points many", 2, "--points"),
    ("tradeoff {model} {split} --metrics recall@20", 1, "gini@K"),
    ("tradeoff {model} {split} --fairness 0 --metrics magic@20", 1, "Unknown metric 'magic@20'"),
    ("tradeoff {model} {split} -o curve.xyz", 1, "Cannot tell the format of curve.xyz"),
    ("tradeoff {model} {split} -o {split}/", 1, "Cannot tell the format"),
    ("tradeoff {model} {split} -o {events}/curve.csv", 4, "cannot be written"),
    ("tradeoff {model} {split} --part train", 2, "--part"),
    ("tradeoff {popularity} {split}", 1, "has no dial"),
    ("evaluate {popularity} {split} --fairness 2", 1, "has no dial"),
    ("recommend {popularity} --fairness 2 -o l.csv", 1, "has no dial"),
    ("target {model} {split}", 1, "exactly one goal; none was given"),
    ("target {model} {split} --max-gini 0.5 --min-coverage 0.5", 1, "got --max-gini and --min-coverage"),
    ("target {model} {split} --max-gini 2", 1, ">= 0 and <= 1"),
    ("target {model} {split} --max-gini small", 2, "--max-gini"),
    ("target {model} {split} --max-gini 0.01 --no-alternatives", 1, "cannot be reached"),
    ("target {private} {split} --max-gini 0.9 -o fair.fairmf", 1, "without its users' histories"),
    ("target {popularity} {split} --max-gini 0.9", 1, "has no dial"),
    ("tune absent", 1, "absent"),
    ("tune {events}", 1, "events.csv"),
    ("tune {split} --metric magic@20", 1, "Unknown metric"),
    ("tune {split} --trials 0", 2, "--trials"),
    ("tune {split} --space regularization", 1, "--space does not understand"),
    ("tune {split} --space taste=1:2", 1, "'taste'"),
    ("tune {split} --space regularization=2:1", 1, "low must be a number below high"),
    ("tune {split} --where gini", 1, "--where does not understand"),
    ("tune {split} --where max_magic=1 --trials 1 --epochs 1 --factors 2", 1, "metric that was measured"),
    ("tune {split} --model popularity", 1, "Popularity"),
    ("tune {split} --factors 0", 1, "'factors' parameter"),
    ("tune {split} --table trials.xyz", 1, "Cannot tell the format"),
    ("tune {split} --storage {events} --trials 1 --epochs 1 --factors 2", 1, "events.csv"),
    ("rerank {model}", 1, "nothing to write"),
    ("rerank {model} -o lists.txt", 1, "Cannot tell the format"),
    ("rerank {model} -o l.csv --share 2", 1, "share"),
    ("rerank {model} -o l.csv --min-exposure 0.5", 1, "--min-exposure does not apply to fairrec"),
    ("rerank {model} -o l.csv --method offsets", 1, "a minimum or a maximum exposure"),
    ("rerank {model} -o l.csv --method offsets --share 0.5 --min-exposure 0.1", 1, "--share does not apply"),
    ("rerank {model} -o l.csv --method offsets --min-exposure 3", 1, "min_exposure"),
    ("rerank {model} --save-model m.fairmf", 1, "no model to save"),
    ("rerank {model} -o l.csv --method magic", 2, "--method"),
    ("rerank {model} -o l.csv -n 0", 2, "-n"),
    ("rerank {private} -o l.csv", 1, "without its users' histories"),
    ("rerank {popularity} -o l.csv --fairness 2", 1, "has no dial"),
    ("audit {model} {split} --catalogue absent.csv", 1, "absent.csv"),
    ("audit {model} {split} --catalogue {items} --group-column shop", 1, "Column 'shop' is not in"),
    ("audit {model} {split} --catalogue {events} --group-column time", 1, "'time'"),
    ("audit {model} {split} --catalogue {model}", 1, "model.fairmf"),
    ("audit {model} {split} --catalogue {empty}", 1, "empty.csv"),
    ("audit {model} {split} --group-column seller", 1, "no catalogue was given"),
    ("audit {model} {split} --quality gini@20", 1, "accuracy metrics"),
    ("audit {model} {split} --confidence 2", 1, "confidence"),
    ("audit {model} {split} --after absent.fairmf", 1, "There is no model absent.fairmf"),
    ("audit {model} {split} -o audit.txt", 1, "JSON"),
    ("audit {popularity} {split} --after-fairness 1", 1, "has no dial"),
    ("audit {model} {split} --at 0", 2, "--at"),
    ("export {model}", 2, "--output"),
    ("export {model} -o vectors.txt", 1, "Cannot tell the format"),
    ("export {model} -o i.ann --what users", 1, "holds items, not users"),
    ("export {model} -o i.parquet --fairness 2", 1, "changes users' vectors"),
    ("export {model} -o i.parquet --probes 3", 1, "are for an index"),
    ("export {model} -o i.ann --probes 100000", 1, "probes"),
    ("export {private} -o u.parquet --what users --fairness 2", 1, "without its users' histories"),
    ("export {popularity} -o u.parquet --what users --fairness 2", 1, "has no dial"),
    ("export {model} -o {events}/x.parquet", 4, "cannot be written"),
    ("reproduce", 1, "Which table or figure"),
    ("reproduce table1-ml2m --data {split}", 1, "There is no table or figure 'table1-ml2m'"),
    ("reproduce figure4-time --list", 1, "--list"),
    ("reproduce figure4-time --data absent", 1, "There is no data 'absent' for experiments"),
    ("reproduce figure4-time --data {events}", 1, "neither the folder of a split nor a .npz file"),
    ("reproduce figure4-time --data {split} --seeds 0", 2, "--seeds"),
    ("reproduce figure4-time --data {split} --epochs none", 2, "--epochs"),
    ("reproduce figure4-time --data {split} --without magic", 1, "--without does not know 'magic'"),
    ("reproduce figure4-time --data {split} -o {events}/out", 4, "cannot be written"),
    ("reproduce figure4-time --data {split} -o {events}", 4, "cannot be written"),
    ("reproduce figure4-time --data ml-1m", 5, "terms"),
    ("reproduce figure4-time --data ml-1m --from absent.zip", 1, "absent.zip"),
    ("reproduce figure4-time --data ml-1m --from {events}", 1, "events.csv"),
    ("reproduce figure4-time --data synthetic-ml20m --from {events}", 1, "synthetic-ml20m is synthetic"),
    ("reproduce figure4-time --data synthetic-ml20m --from {split}", 1, "synthetic-ml20m is synthetic"),
]


@pytest.fixture(scope="module")
def places(made, tmp_path_factory):
    from fairmf.cli.app import run

    other = tmp_path_factory.mktemp("other")
    small = ["--factors", "2", "--epochs", "1", "-q"]
    assert run(["fit", str(made / "split"), "-o", str(other / "private.fairmf"), "--no-histories", *small]) == 0
    assert run(["fit", str(made / "split"), "-o", str(other / "pop.fairmf"), "--model", "popularity", "-q"]) == 0
    (other / "items.csv").write_text("item_id,title,seller\n100,a,x\n101,b,y\n")
    (other / "empty.csv").write_text("")
    return {
        "model": made / "model.fairmf", "split": made / "split", "events": made / "events.csv",
        "private": other / "private.fairmf", "popularity": other / "pop.fairmf", "items": other / "items.csv",
        "empty": other / "empty.csv",
    }  # fmt: skip


@pytest.mark.parametrize(("line", "code", "words"), CASES, ids=[line for line, _, _ in CASES])
def test_one_clear_line(fairmf, places, tmp_path, monkeypatch, line, code, words):
    monkeypatch.delenv("FAIRMF_DATA", raising=False)  # ml-1m must not be found
    before = sorted(tmp_path.rglob("*"))
    done = fairmf(*(part.format(**places) for part in line.split()), "--no-record")
    assert done.code == code, done.err
    errors = [text for text in done.err.splitlines() if text.startswith(("Error:", "hint:"))]
    assert len([text for text in errors if text.startswith("Error:")]) == 1
    assert "Traceback" not in done.err
    assert "Internal error" not in done.err
    assert words in errors[0]
    assert done.out == ""
    assert [path for path in sorted(tmp_path.rglob("*")) if path.suffix == ".tmp"] == []
    assert before == []
