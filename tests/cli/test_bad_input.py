"""Every bad input of this table gives one clear line, perhaps a hint, a documented exit code, and leaves nothing.

A row: what is wrong, how to bring it about (a function of the folder and the made files that returns the arguments),
the exit code, and words that the line must have.
"""

import contextlib
import errno
import os
import shutil
import sqlite3

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from full_disk import fail_after

from fairmf.cli import errors
from fairmf.cli.errors import CANNOT_WRITE, NOT_FETCHED, PROBLEM, USAGE


def inspect(name, content=None, *flags):
    """`fairmf inspect` of a file with this content."""

    def prepare(folder, made):
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        elif content is not None:
            (folder / name).write_text(content)
        return ["inspect", name, *flags]

    return prepare


def split_by_date(content):
    """`fairmf split --by time` of a file with this content, from a date on."""

    def prepare(folder, made):
        (folder / "a.csv").write_text(content)
        return ["split", "a.csv", "-o", "s", "--by", "time", "--test-from", "2001-01-01"]

    return prepare


def fit(*flags, **files):
    """`fairmf fit` of the made split, with files of the given content beside it (a_toml is a.toml)."""

    def prepare(folder, made):
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_text(content)
        return ["fit", str(made / "split"), "-o", "m.fairmf", *flags]

    return prepare


def evaluate(harm=None, *flags):
    """`fairmf evaluate` of copies of the made model and split, after `harm` was done to the folder they are in."""

    def prepare(folder, made):
        shutil.copy(made / "model.fairmf", folder / "model.fairmf")
        shutil.copytree(made / "split", folder / "split")
        if harm is not None:
            harm(folder)
        return ["evaluate", "model.fairmf", "split", *flags]

    return prepare


def recommend(*arguments, **files):
    """`fairmf recommend` with the made model."""

    def prepare(folder, made):
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_text(content)
        return ["recommend", str(made / "model.fairmf"), *arguments]

    return prepare


def report(*flags, **files):
    """`fairmf report` of the made model, with files of the given content beside it."""

    def prepare(folder, made):
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_text(content)
        return ["report", str(made / "model.fairmf"), str(made / "split"), "-o", "r.html", *flags]

    return prepare


def popularity_report(folder, made):
    from fairmf.cli.app import run

    run(["fit", str(made / "split"), "-o", str(folder / "p.fairmf"), "--model", "popularity", "-q"])
    return ["report", str(folder / "p.fairmf"), str(made / "split"), "-o", "r.html"]


def split(*flags):
    return lambda folder, made: ["split", str(made / "events.csv"), "-o", "s", *flags]


def parquet(folder, made):
    pq.write_table(pa.table({"user": [1.5, None], "item": [1, 2]}), folder / "a.parquet")
    return ["inspect", "a.parquet"]


def truncated_parquet(folder, made):
    pq.write_table(pa.table({"user": [1, 2], "item": [1, 2]}), folder / "a.parquet")
    content = (folder / "a.parquet").read_bytes()
    (folder / "a.parquet").write_bytes(content[: len(content) // 2])
    return ["inspect", "a.parquet"]


def cut(path, share=0.5):
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def other_split(folder):
    from running import write_events

    from fairmf.cli.app import run

    shutil.rmtree(folder / "split")
    write_events(folder / "other.csv", items=50)
    run(["split", str(folder / "other.csv"), "-o", str(folder / "split"), "-q", "--json"])


def checkpoint_as_model(folder, made):
    from fairmf import IALS, synthetic

    IALS(factors=2, epochs=1).fit(synthetic(100, 40, 900), checkpoint=folder / "kept", progress=False)
    stored = next(file for file in (folder / "kept").iterdir() if file.stat().st_size > 1000)
    return ["recommend", str(stored), "1"]


def database(query):
    def prepare(folder, made):
        with contextlib.closing(sqlite3.connect(folder / "shop.db")) as opened, opened:
            opened.execute("CREATE TABLE events (user INTEGER, item INTEGER)")
            opened.execute("INSERT INTO events VALUES (1, NULL)")
        return ["inspect", "sqlite:///shop.db", *(["--query", query] if query else [])]

    return prepare


def folder_of(*names):
    def prepare(folder, made):
        for name in names:
            (folder / name).mkdir()
        return ["inspect", *names]

    return prepare


def output_is_a_folder(folder, made):
    (folder / "m.fairmf").mkdir()
    return ["fit", str(made / "split"), "-o", "m.fairmf"]


def output_is_a_pipe(folder, made):
    os.mkfifo(folder / "m.fairmf")
    return ["fit", str(made / "split"), "-o", "m.fairmf"]


def output_below_a_file(folder, made):
    (folder / "file").write_text("x")
    return ["fit", str(made / "split"), "-o", "file/m.fairmf"]


def record_of_another_verb(folder, made):
    return ["evaluate", str(made / "model.fairmf"), str(made / "split"), "--config", str(made / "model.fit.toml")]


BINARY = bytes(range(256)) * 40
EVENTS = "user,item,rating,time\n1,2,5,10\n1,3,4,11\n2,3,x,12\n"


def serve(*flags, **files):
    """`fairmf serve` of the made model, with files by name (keys_txt is keys.txt); it must end before it listens."""

    def prepare(folder, made):
        for name, content in files.items():
            (folder / name.replace("_", ".")).write_text(content)
        return ["serve", str(made / "model.fairmf"), "--port", "0", *flags]

    return prepare


TABLE = {
    # -- files of events
    "no such file": (inspect("nowhere.csv"), PROBLEM, "no file or data set nowhere.csv"),
    "a directory without tables": (folder_of("empty"), PROBLEM, "no *.parquet"),
    "a binary file": (inspect("a.csv", BINARY), PROBLEM, "binary file"),
    "an empty file": (inspect("a.csv", ""), PROBLEM, "is empty"),
    "blank lines only": (inspect("a.csv", "\n\n  \n"), PROBLEM, "is empty"),
    "a header and no rows": (inspect("a.csv", "user,item\n"), PROBLEM, "no rows"),
    "one column": (inspect("a.csv", "user\n1\n2\n"), PROBLEM, "which column of a.csv is the item"),
    "columns nobody knows": (inspect("a.csv", "a,b,c\n1,2,3\n"), PROBLEM, "a, b, c"),
    "a wrong column": (inspect("a.csv", EVENTS, "--user", "usr"), PROBLEM, "did you mean --user='user'"),
    "a wrong item column": (inspect("a.csv", EVENTS, "--item", "movie"), PROBLEM, "'movie' is not in a.csv"),
    "the same column twice": (inspect("a.csv", EVENTS, "--item", "user", "--user", "user"), PROBLEM, "two different"),
    "a position outside": (inspect("a.csv", "1,2\n3,4\n", "--user", "7"), PROBLEM, "columns are 0, 1"),
    "ids that are null": (inspect("a.csv", "user,item\n1,2\n,3\n"), PROBLEM, "null"),
    "ids that are NaN": (parquet, PROBLEM, "null or NaN"),
    "weights that are text": (inspect("a.csv", EVENTS, "--weight", "rating"), PROBLEM, "must hold numbers"),
    "weights that are NaN": (inspect("a.csv", "user,item,w\n1,2,nan\n", "--weight", "w"), PROBLEM, "NaN"),
    "a date without a half-life": (inspect("a.csv", EVENTS, "--as-of", "2024-01-01"), PROBLEM, "--half-life"),
    "a half-life of 0": (inspect("a.csv", EVENTS, "--half-life", "0"), PROBLEM, "'days' parameter"),
    "a rating without a threshold": (inspect("a.csv", EVENTS, "--rating", "rating"), PROBLEM, "threshold"),
    "a threshold without a rating": (inspect("a.csv", "user,item\n1,2\n", "--rating-above", "3"), PROBLEM, "rating"),
    "a threshold that nothing passes": (
        inspect("a.csv", "user,item,rating\n1,2,3\n", "--rating-above", "9"), PROBLEM, "lower --rating-above"),
    "a threshold that is a word": (inspect("a.csv", EVENTS, "--rating-above", "high"), USAGE, "--rating-above"),
    "ragged lines": (inspect("a.csv", "user,item\n1,2\n1,2,3\n"), PROBLEM, "cannot be read as CSV"),
    "a delimiter of quotes": (inspect("a.csv", EVENTS, "--delimiter", '"'), PROBLEM, "without quotes"),
    "a quote that is not closed": (inspect("a.csv", EVENTS + '5,"6\n'), PROBLEM, "A quote opened in line"),
    "a million columns": (inspect("a.csv", "1," * 10**6), PROBLEM, "1,000,001 columns"),
    "ratings instead of items": (inspect("a.csv", "User,Code,Book-Rating\na,b,5\n"), PROBLEM, "is the item: there are"),
    "two kinds of items": (inspect("a.csv", "user,song_id,artist_id\n1,2,3\n"), PROBLEM, "may be song_id or artist_id"),
    "a date among numbers": (
        split_by_date("user,item,time\n" + "".join(f"{k % 9},{k % 7},{k}\n" for k in range(90))),
        PROBLEM, "not clear which unit"),
    "two statements": (database("SELECT 1 AS user, 2 AS item; DROP TABLE x"), PROBLEM, "one SQL statement"),
    "a statement that writes": (database("ATTACH 'new.db' AS other"), PROBLEM, "a statement that reads"),
    "an unknown encoding": (inspect("a.csv", EVENTS, "--encoding", "klingon"), PROBLEM, "encoding"),
    "another encoding than said": (inspect("a.csv", "user,item\nJosé,1\n".encode("latin-1")), PROBLEM, "a.csv"),
    "a zip archive": (inspect("a.zip", b"PK\x03\x04 and more"), PROBLEM, "zip archive"),
    "text called Parquet": (inspect("a.parquet", EVENTS), PROBLEM, "cannot be read as Parquet"),
    "a truncated Parquet file": (truncated_parquet, PROBLEM, "cannot be read as Parquet"),
    "text called Arrow": (inspect("a.arrow", EVENTS), PROBLEM, "cannot be read as Arrow"),
    "a broken gzip": (inspect("a.csv.gz", b"\x1f\x8b\x08\x00broken"), PROBLEM, "a.csv.gz"),
    "a broken xz": (inspect("a.csv.xz", b"\xfd7zXZ\x00broken"), PROBLEM, "a.csv.xz"),
    # -- databases and data sets
    "a database without a query": (database(None), PROBLEM, "--query"),
    "a table that is not there": (database("SELECT user, item FROM orders"), PROBLEM, "orders"),
    "null ids in a database": (database("SELECT user, item FROM events"), PROBLEM, "null"),
    "a database that is not there": (inspect("sqlite:///no.db", None, "--query", "SELECT 1"), PROBLEM, "no.db"),
    "a kind of database nobody knows": (inspect("oracle://x/y", None, "--query", "SELECT 1"), PROBLEM, "oracle"),
    "a query without a database": (inspect("a.csv", EVENTS, "--query", "SELECT 1"), PROBLEM, "is for databases"),
    "an unknown data set": (lambda f, m: ["datasets", "fetch", "ml-1n"], PROBLEM, "did you mean 'ml-1m'"),
    "a data set's name with a slip": (inspect("ml-2om"), PROBLEM, "ml-2om"),
    "terms that are not accepted": (lambda f, m: ["datasets", "fetch", "ml-1m"], NOT_FETCHED, "have to be accepted"),
    "a data set nobody fetched": (inspect("ml-1m"), NOT_FETCHED, "terms"),
    "a copy that is not there": (lambda f, m: ["datasets", "fetch", "ml-1m", "--from", "x.zip"], PROBLEM, "x.zip"),
    "made-up events of a strange kind": (lambda f, m: ["datasets", "make", "-o", "a.xls"], PROBLEM, ".csv or .parquet"),
    # -- usage and configuration
    "no verb of that name": (lambda f, m: ["trian"], USAGE, "No such command"),
    "no flag of that name": (fit("--factor", "3"), USAGE, "--factor"),
    "no output": (lambda f, m: ["fit", str(m / "split")], USAGE, "--output"),
    "no argument": (lambda f, m: ["inspect"], USAGE, "FILE"),
    "one argument too many": (lambda f, m: ["inspect", "a", "b"], USAGE, "b"),
    "a number that is none": (split("--heldout", "many"), USAGE, "--heldout"),
    "a choice that is none": (split("--by", "luck"), USAGE, "--by"),
    "no such configuration": (fit("--config", "no.toml"), PROBLEM, "no.toml cannot be read"),
    "a configuration that is a folder": (fit("--config", "."), PROBLEM, "cannot be read"),
    "bad TOML": (fit("--config", "a.toml", a_toml="factors = = 3"), PROBLEM, "not valid TOML"),
    "bad JSON": (fit("--config", "a.json", a_json="{factors: 3}"), PROBLEM, "not valid JSON"),
    "JSON that is no table": (fit("--config", "a.json", a_json="[3]"), PROBLEM, "no table"),
    "an unknown key": (fit("--config", "a.toml", a_toml="factros = 3"), PROBLEM, "'factros'"),
    "an unknown key in the verb's table": (fit("--config", "a.toml", a_toml="[fit]\nepoch = 3"), PROBLEM, "'epoch'"),
    "a table for a verb that is none": (fit("--config", "a.toml", a_toml="[fti]\nepochs = 3"), PROBLEM, "'fti'"),
    "a word for a number": (fit("--config", "a.toml", a_toml='factors = "many"'), PROBLEM, "must be an integer >= 1"),
    "a fraction for an integer": (fit("--config", "a.toml", a_toml="patience = 2.5"), USAGE, "from a.toml"),
    "true for a number": (fit("--config", "a.toml", a_toml="factors = true"), PROBLEM, "must be an integer"),
    "a word for a flag": (fit("--config", "a.toml", a_toml='no-histories = "maybe"'), PROBLEM, "true or false"),
    "a table for a value": (fit("--config", "a.toml", a_toml="factors = {a = 1}"), PROBLEM, "one value"),
    "the record of another verb": (record_of_another_verb, PROBLEM, "fairmf fit"),
    # -- settings
    "a setting out of range": (fit("--fairness", "-1"), PROBLEM, "The 'fairness' parameter of FairALS must be"),
    "no factors": (fit("--factors", "0"), PROBLEM, "must be an integer >= 1"),
    "half a factor": (fit("--factors", "1.5"), PROBLEM, "must be an integer >= 1"),
    "not a number": (fit("--regularization", "nan"), PROBLEM, "regularization"),
    "an unknown model": (fit("--model", "svd"), PROBLEM, "no model 'svd'"),
    "a setting of another model": (fit("--model", "ials", "--fairness", "2"), PROBLEM, "has no --fairness"),
    "an unknown solver": (fit("--solver", "magic"), PROBLEM, "'eigenbasis_cg' or 'cholesky'"),
    "an unknown backend": (fit("--backend", "abacus"), PROBLEM, "backend"),
    "fairness without its weight": (fit("--fairness", "1", "--unobserved-weight", "0"), PROBLEM, "unobserved_weight"),
    "early stopping without a split": (
        lambda f, m: ["fit", str(m / "events.csv"), "-o", "m.fairmf", "--early-stopping", "ndcg@10"],
        PROBLEM, "must be a split"),
    "early stopping on an unknown metric": (fit("--early-stopping", "beauty@10"), PROBLEM, "beauty"),
    "epochs of what has none": (fit("--model", "popularity", "--epochs", "3"), PROBLEM, "--epochs"),
    "column flags for a split": (fit("--user", "u"), PROBLEM, "--user does not apply"),
    # -- splits
    "more held out than there are": (split("--heldout", "500"), PROBLEM, "nobody to train on"),
    "a share of everything": (split("--by", "interaction", "--share", "1.5"), PROBLEM, "target_share"),
    "weights that would be ignored": (split("--weight", "rating"), PROBLEM, "ignores weights"),
    "counts over all time": (split("--by", "time", "--weight", "sum"), PROBLEM, "--weight sum"),
    "other weights for a split": (fit("--reweight", "log"), PROBLEM, "weights of a split are fixed"),
    "a public split with a seed": (split("--seed", "3"), PROBLEM, "--share and --seed"),
    "filters that leave nothing": (split("--min-user", "5000"), PROBLEM, "Only 0 users are left"),
    "a date that is none": (split("--by", "time", "--test-from", "someday"), PROBLEM, "someday"),
    "times that are not there": (
        lambda f, m: (f / "a.csv").write_text("user,item\n1,2\n") and ["split", "a.csv", "-o", "s", "--by", "time"],
        PROBLEM, "needs times"),
    "a split of a split": (lambda f, m: ["split", str(m / "split"), "-o", "s"], PROBLEM, "is the folder of a split"),
    "a part of the split is missing": (
        evaluate(lambda f: next((f / "split").glob("test-*")).unlink()), PROBLEM, "incomplete"),
    "a part of the split is cut": (evaluate(lambda f: cut(next((f / "split").glob("train-*")))), PROBLEM, "truncated"),
    "a split whose list is damaged": (
        evaluate(lambda f: (f / "split" / "split.json").write_text("{")), PROBLEM, "not valid JSON"),
    "a folder that is no split": (evaluate(lambda f: (f / "split" / "split.json").unlink()), PROBLEM, "not the folder"),
    "another split than the model's": (evaluate(other_split), PROBLEM, "items"),
    # -- models
    "no such model": (evaluate(lambda f: (f / "model.fairmf").unlink()), PROBLEM, "no model model.fairmf"),
    "a truncated model": (evaluate(lambda f: cut(f / "model.fairmf")), PROBLEM, "model.fairmf cannot be read"),
    "a model of nothing": (evaluate(lambda f: (f / "model.fairmf").write_bytes(b"")), PROBLEM, "bytes"),
    "a file of another kind as model": (evaluate(lambda f: (f / "model.fairmf").write_bytes(BINARY)), PROBLEM, "model"),
    "a checkpoint as model": (checkpoint_as_model, PROBLEM, "cannot be read as a fairmf model"),
    "a split as model": (lambda f, m: ["recommend", str(m / "split"), "1"], PROBLEM, "is a split, not a model"),
    "a model as events": (lambda f, m: ["fit", str(m / "model.fairmf"), "-o", "m.fairmf"], PROBLEM, "is a model"),
    "a folder as model": (lambda f, m: ["recommend", str(m), "1"], PROBLEM, "is a folder"),
    "an unknown metric": (evaluate(None, "--metrics", "ndgc@10"), PROBLEM, "ndgc"),
    "a length that is no number": (evaluate(None, "--at", "ten"), PROBLEM, "whole numbers"),
    "a length of 0": (evaluate(None, "--at", "0"), PROBLEM, "0"),
    "a fairness below 0": (evaluate(None, "--fairness", "-2"), PROBLEM, "fairness"),
    "a confidence of 2": (evaluate(None, "--confidence", "2"), PROBLEM, "confidence"),
    # -- recommending
    "unknown users": (recommend("987654"), PROBLEM, "unknown, the first is 987654"),
    "users of another kind": (recommend("Ann"), PROBLEM, "unknown, the first is 'Ann'"),
    "longer lists than the catalogue": (recommend("1", "-n", "5000"), PROBLEM, "more than the catalogue"),
    "lists of length 0": (recommend("1", "-n", "0"), USAGE, "--top"),
    "everybody on the terminal": (recommend(), PROBLEM, "need a file"),
    "lists into a strange file": (recommend("-o", "lists.xlsx"), PROBLEM, ".parquet, .csv or .jsonl"),
    "no file of users": (recommend("--users-from", "no.txt"), PROBLEM, "no.txt"),
    "an empty file of users": (recommend("--users-from", "a.txt", a_txt="\n"), PROBLEM, "holds no user ids"),
    "a user in another spelling": (recommend("007"), PROBLEM, "'007'"),
    "users twice": (recommend("1", "--users-from", "a.txt", a_txt="1\n"), PROBLEM, "three ways"),
    "unknown items to leave out": (recommend("1", "--without", "a.txt", a_txt="77777\n"), PROBLEM, "items are unknown"),
    "new users with unknown items": (
        recommend("--new-users", "a.csv", a_csv="user,item\n1,77777\n2,88888\n"), PROBLEM, "is known to the model"),
    # -- reports
    "stops that are no numbers": (report("--fairness", "0,much"), PROBLEM, "takes numbers separated by commas"),
    "stops below 0": (report("--fairness", "0,-1"), PROBLEM, "fairness"),
    "one stop only": (report("--fairness", "0", "--chosen", "0"), PROBLEM, "at least one fairness above 0"),
    "a report on an unknown quality": (report("--quality", "gini@20"), PROBLEM, "accuracy"),
    "too many examples": (report("--examples", "100"), PROBLEM, "<= 12"),
    "a report of what has no dial": (popularity_report, PROBLEM, "has no dial"),
    "no catalogue": (report("--catalogue", "no.csv"), PROBLEM, "no table of items no.csv"),
    "a catalogue of other items": (
        report("--catalogue", "a.csv", a_csv="item,name\nx,Heat\n"), PROBLEM, "none of the model's items"),
    "a catalogue without names": (
        report("--catalogue", "a.csv", a_csv="item,price\n100,3\n"), PROBLEM, "no column of names or groups"),
    "a catalogue's column that is not there": (
        report("--catalogue", "a.csv", "--group-column", "genre", a_csv="item,name\n100,Heat\n"),
        PROBLEM, "'genre' is not in a.csv"),
    "a catalogue with a comma too many": (
        report("--catalogue", "a.csv", a_csv="item,name,genre\n100,Heat,x\n101,Wars, Star,x\n"),
        PROBLEM, "Row 3 of a.csv has 4 columns"),
    "a catalogue of one column": (report("--catalogue", "a.csv", a_csv="item\n100\n"), PROBLEM, "two columns"),
    # -- serving
    "serving no file": (lambda f, m: ["serve", "nowhere.fairmf"], PROBLEM, "nowhere.fairmf"),
    "serving a split": (lambda f, m: ["serve", str(m / "events.csv")], PROBLEM, "cannot be read as a fairmf model"),
    "serving at no address": (serve("--host", "256.1.1.1"), PROBLEM, "Cannot listen at 256.1.1.1"),
    "keys that are not there": (serve("--api-key-file", "no.txt"), PROBLEM, "no.txt"),
    "a file without keys": (serve("--api-key-file", "keys.txt", keys_txt="# none\n\n"), PROBLEM, "no key"),
    "a key that can be guessed": (serve("--api-key-file", "keys.txt", keys_txt="secret\n"), PROBLEM, "shorter than 16"),
    "histories logged alone": (serve("--log-histories"), PROBLEM, "--log-requests"),
    "an evenness above 1": (serve("--max-evenness", "2"), USAGE, "--max-evenness"),
    # -- writing
    "an output that is a folder": (output_is_a_folder, CANNOT_WRITE, "it is a folder"),
    "an output that is a pipe": (output_is_a_pipe, CANNOT_WRITE, "a device or a pipe"),
    "an output below a file": (output_below_a_file, CANNOT_WRITE, "cannot be created"),
    "a split where a file is": (
        lambda f, m: (f / "s").write_text("x") and ["split", str(m / "events.csv"), "-o", "s"], PROBLEM, "is a file"),
    "a record that cannot be written": (
        lambda f, m: (f / "r").write_text("x") and ["inspect", str(m / "events.csv"), "--record", "r/a.toml"],
        CANNOT_WRITE, "a.toml"),
}  # fmt: skip


def check(done, code, words):
    assert done.code == code, (done.code, done.err)
    assert "Traceback" not in done.err
    notes = ("read as", "        ", "warning: ", "compiling kernels")
    lines = [line for line in done.err.splitlines() if not line.startswith(notes)]
    assert lines[0].startswith("Error: "), lines
    assert words in " ".join(lines)
    assert len(lines) <= 2, lines
    assert all(line.startswith("hint: ") for line in lines[1:]), lines


@pytest.mark.parametrize("case", TABLE)
def test_bad_input_is_one_clear_line(case, fairmf, made, tmp_path, monkeypatch):
    prepare, code, words = TABLE[case]
    arguments = prepare(tmp_path, made)
    before = {path for path in tmp_path.rglob("*") if path.name != "accepted.json"}
    done = fairmf(*arguments)
    check(done, code, words)
    assert done.out == "" or "record" in case, done.out
    left = {path for path in tmp_path.rglob("*") if "cache" not in path.parts} - before
    assert not [path for path in left if path.is_file()], left


def test_the_table_is_long_enough_and_its_codes_are_documented():
    assert len(TABLE) >= 40
    assert {code for _, code, _ in TABLE.values()} <= set(errors.EXIT_CODES)


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["fit", "{made}/split", "-o", "m.fairmf", "--factors", "2", "--settings", "given"], "m.fairmf"),
        (["split", "{made}/events.csv", "-o", "s"], "s/split.json"),
        (["recommend", "{made}/model.fairmf", "-o", "lists.csv"], "lists.csv"),
        (["report", "{made}/model.fairmf", "{made}/split", "-o", "r.html", "--fairness", "0,1"], "r.html"),
        (["recommend", "{made}/model.fairmf", "-o", "lists.jsonl"], "lists.jsonl"),
        (["recommend", "{made}/model.fairmf", "-o", "lists.parquet"], "lists.parquet"),
        (
            ["datasets", "make", "-o", "events.csv", "--users", "50", "--items", "20", "--interactions", "300"],
            "events.csv",
        ),
    ],
)
def test_a_full_disk(arguments, output, fairmf, made, tmp_path, monkeypatch):
    """Every write of a temporary file fails as on a full disk; what was there before is unchanged."""
    old = tmp_path / output
    if output != "s/split.json":
        old.write_text("old")
    fail_after(monkeypatch, 5, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    done = fairmf(*(argument.replace("{made}", str(made)) for argument in arguments))
    check(done, CANNOT_WRITE, "No space left on device")
    assert "hint: " in done.err
    if output != "s/split.json":
        assert old.read_text() == "old"
    assert not list(tmp_path.rglob("*.tmp"))
