"""What holds for every verb: help, completion, exit codes, --json, --quiet, --debug, warnings, broken pipes, Ctrl-C."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from running import write_events

from fairmf import FairALS, Interactions, errors, load_model
from fairmf.cli import errors as failures
from fairmf.cli.app import VERBS, Verbs, load_verb, run

PROGRAM = [sys.executable, "-c", "from fairmf.cli import main; main()"]


def process(*arguments, cwd, **how):
    environment = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", **how.pop("environment", {})}
    return subprocess.run(
        [*PROGRAM, *arguments], cwd=cwd, capture_output=True, text=True, env=environment, check=False, **how
    )


def commands():
    """Every verb, and every verb of a verb."""
    for name in VERBS:
        command = load_verb(name)
        inner = getattr(command, "commands", None)
        if inner:
            yield from ((f"{name} {verb}", part) for verb, part in inner.items())
        else:
            yield name, command


@pytest.mark.parametrize("verb", [name for name, _ in commands()])
def test_every_verb_has_help_with_examples_and_the_flags_of_all(verb, fairmf):
    done = fairmf(*verb.split(), "--help")
    assert done.code == 0
    assert "Examples:" in done.out
    assert f"fairmf {verb}" in done.out.split("Examples:")[1]
    for flag in ("--config", "--record", "--json", "--quiet", "--debug"):
        assert flag in done.out


def test_help_shows_no_python_types(fairmf):
    """Typer would show <bool> beside every flag and <str> beside every argument."""
    for verb in ("", "fit", "recommend", "datasets", "datasets make"):
        assert not re.findall(r"<(bool|str|int|float|path)[^|]*>", fairmf(*verb.split(), "--help").out), verb


def test_fit_lists_data_and_output_first_and_internals_only_if_asked(fairmf):
    shown, everything = fairmf("fit", "--help").out, fairmf("fit", "--help-all").out
    listed = re.findall(r"^│[ *]+(data|--[a-z-]+) ", shown.lower(), re.MULTILINE)
    places = [listed.index(flag) for flag in ("data", "--output", "--user", "--factors", "--config")]
    assert places[:2] == [0, 1]
    assert places == sorted(places)
    for flag in ("--solver ", "--cg-steps ", "--rho ", "--lambda-f "):
        assert f"│ {flag}" not in shown
        assert f"│ {flag}" in everything
    assert "--help-all also shows" in " ".join(shown.split())
    assert "also shows" not in everything
    assert "--help-all" not in fairmf("inspect", "--help").out  # no flag of inspect is for experts


@pytest.mark.parametrize("how", [("--records", "no"), ("--no-record",), "environment"])
def test_run_records_can_be_switched_off(fairmf, made, tmp_path, monkeypatch, how):
    if how == "environment":
        monkeypatch.setenv("FAIRMF_RECORDS", "no")
    flags = () if how == "environment" else how
    done = fairmf("split", made / "events.csv", "-o", tmp_path / "s", "--json", *flags)
    assert done.json["record"] is None
    assert not (tmp_path / "s" / "split.toml").exists()
    if how == "environment":  # a record that is asked for by name is written
        assert fairmf("split", made / "events.csv", "-o", tmp_path / "s", "--record", tmp_path / "r.toml").code == 0
        assert (tmp_path / "r.toml").exists()


@pytest.mark.parametrize(("verb", "command"), list(commands()))
def test_every_flag_of_every_verb_is_explained(verb, command):
    for parameter in command.params:
        assert parameter.help, (verb, parameter.name)


def test_the_help_lists_every_verb_and_every_exit_code(fairmf):
    for done in (fairmf("--help"), fairmf()):
        assert done.code == 0
        for name, verb in VERBS.items():
            assert name in done.out
            assert " ".join(verb.summary.split()[:3]) in done.out
        for code in failures.EXIT_CODES:
            assert f"{code} " in done.out


def test_the_summary_in_the_table_is_the_beginning_of_the_verbs_help():
    # The table repeats what the files say, so that the files need not be imported; they must not drift apart.
    for name, verb in VERBS.items():
        first = (load_verb(name).help or "").split("\n\n")[0]
        assert first.split()[:2] == verb.summary.split()[:2], name


def test_help_and_version_import_nothing_slow(tmp_path):
    code = (
        "import sys; from fairmf.cli.app import run; run([sys.argv[1]]);"
        "print([m for m in ('numba', 'numpy', 'scipy', 'pyarrow') if m in sys.modules], file=sys.stderr)"
    )
    for flag in ("--help", "--version"):
        done = subprocess.run([sys.executable, "-c", code, flag], capture_output=True, text=True, cwd=tmp_path)
        assert done.stderr.strip() == "[]"


@pytest.mark.slow
def test_recommend_imports_no_reader_and_no_other_verb(made, tmp_path):
    code = (
        "import sys; from fairmf.cli.app import run; run(['recommend', sys.argv[1], '1', '-q']);"
        "print(*(m for m in sys.modules if m.startswith('fairmf.')), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, str(made / "model.fairmf")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    imported = {*done.stderr.split()}
    needless = (
        "data.read",
        "data.read_csv",
        "data.read_sql",
        "data.split",
        "cli.split",
        "cli.fit",
        "metrics",
        "control",
    )
    assert "fairmf.models.model_file" in imported
    assert not imported & {f"fairmf.{name}" for name in needless}
    assert len(imported) <= 60, sorted(imported)


def test_an_unknown_verb_suggests_the_nearest(fairmf):
    done = fairmf("inpsect", "a.csv")
    assert done.code == failures.USAGE
    assert "Did you mean 'inspect'?" in done.err
    assert fairmf("nonsense").code == failures.USAGE


COMPLETIONS = {
    "fairmf in": "inspect",
    "fairmf fit --early": "--early-stopping",
    "fairmf fit --model f": "fair-als fiadmm",
    "fairmf fit --solver ch": "cholesky",
    "fairmf datasets fetch ml-2": "ml-20m ml-25m",
}
# As a shell asks, but all in one process: a line with the answer to each line typed, then what was imported needlessly.
COMPLETE = """
import contextlib, io, json, os, sys
from fairmf.cli import main
os.environ["_FAIRMF_COMPLETE"] = "complete_bash"
for words in json.loads(sys.argv[1]):
    os.environ.update(COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1))
    answer = io.StringIO()
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(answer):
        main()
    print(*answer.getvalue().split())
print(*{"numba", "fairmf.cli.inspect", "fairmf.cli.split"} & {*sys.modules})
"""


def test_completion_is_offered_and_completes_verbs_without_importing_them(fairmf, monkeypatch, tmp_path):
    command = [sys.executable, "-c", COMPLETE, json.dumps(list(COMPLETIONS))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.splitlines() == [*COMPLETIONS.values(), ""]
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    for shell in ("bash", "zsh", "fish"):
        shown = fairmf("--show-completion", shell)
        assert shown.code == 0, shown.err
        assert "_FAIRMF_COMPLETE" in shown.out


def test_json_is_one_object_on_stdout_and_notes_are_on_stderr(fairmf, made):
    done = fairmf("inspect", made / "events.csv", "--json")
    assert done.json["rows"] == 2500
    assert done.json["verb"] == "inspect"
    assert "read as" in done.err
    quiet = fairmf("inspect", made / "events.csv", "--json", "--quiet")
    assert quiet.err == ""
    assert quiet.json["rows"] == 2500


def test_people_get_a_table_on_stdout(fairmf, made):
    done = fairmf("inspect", made / "events.csv")
    assert "2,500" in done.out
    assert "Gini" in done.out
    assert "{" not in done.out


def test_errors_are_one_line_and_a_hint_and_debug_adds_the_trace(fairmf):
    done = fairmf("inspect", "nowhere.csv")
    assert done.code == failures.PROBLEM
    assert done.out == ""
    assert [line.split(":")[0] for line in done.err.splitlines()] == ["Error", "hint"]
    debug = fairmf("inspect", "nowhere.csv", "--debug")
    assert debug.code == failures.PROBLEM
    assert "Traceback" in debug.err
    assert debug.err.endswith(done.err)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidData("x"), 1),
        (errors.InvalidParameter("x"), 1),
        (errors.BrokenFile("x"), 1),
        (errors.MissingHistories("x"), 1),
        (errors.MissingDependency("x"), 3),
        (errors.CannotWrite(None, "x"), 4),
        (errors.DownloadFailed("x"), 5),
        (errors.LicenceNotAccepted("x"), 5),
        (errors.NotFinite("x"), 6),
        (MemoryError(), 1),
        (PermissionError(13, "Permission denied", "events.csv"), 1),
        (ZeroDivisionError("x"), 70),
        (KeyboardInterrupt(), 130),
        (BrokenPipeError(), 141),
    ],
)
def test_exit_codes(error, code, fairmf, monkeypatch):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("fairmf.cli.inspect.read_events", broken)
    done = fairmf("inspect", "events.csv")
    assert done.code == code
    assert code in failures.EXIT_CODES
    assert "Traceback" not in done.err
    assert len(done.err.splitlines()) in ((0,) if code == 141 else (1, 2))


def test_an_internal_error_is_one_line_too(fairmf, made, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("fairmf.cli.inspect.read_events", broken)
    done = fairmf("inspect", made / "events.csv")
    assert done.code == failures.BUG
    assert done.err.splitlines()[0] == "Error: Internal error, RuntimeError: two lines"


def test_warnings_are_notes(fairmf, made, monkeypatch):
    def warned(*_, **__):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("values look like [bold]counts", UserWarning, stacklevel=1)
        return []

    monkeypatch.setattr("fairmf.cli.inspect.warnings_about", warned)
    assert "warning: values look like [bold]counts\n" in fairmf("inspect", made / "events.csv").err
    assert fairmf("inspect", made / "events.csv", "-q").err == ""


def test_ctrl_c_ends_with_130_and_leaves_nothing(fairmf, made, tmp_path, monkeypatch):
    def impatient(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("fairmf.data.split_io.replacing", impatient)
    done = fairmf("split", made / "events.csv", "-o", "split")
    assert done.code == failures.INTERRUPTED
    assert "Interrupted" in done.err
    assert "Traceback" not in done.err
    assert fairmf("fit", "split", "-o", "m.fairmf").code == failures.PROBLEM


LONG_FIT = ["fit", "events.csv", "-o", "m.fairmf", "--factors", "8", "--epochs", "1000000", "--checkpoint", "kept"]
LONG_FIT += ["--settings", "given"]


def test_a_fit_that_is_interrupted_keeps_the_last_epoch(tmp_path):
    write_events(tmp_path / "events.csv")
    running = subprocess.Popen([*PROGRAM, *LONG_FIT], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not list(tmp_path.glob("kept/*.checkpoint")) and running.poll() is None:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == failures.INTERRUPTED, err
    assert "Traceback" not in err
    model = load_model(tmp_path / "m.fairmf")
    kept = model.history.kept_epoch
    assert 1 <= kept < 1_000_000
    assert model.history.verdict == "interrupted"
    assert f"interrupted in epoch {kept + 1}; the model is that of epoch {kept}" in err
    assert f"epochs = {kept}" in (tmp_path / "m.fit.toml").read_text()
    shorter = FairALS(factors=8, epochs=kept).fit(
        Interactions.from_csv(tmp_path / "events.csv", user="user_id", item="item_id")
    )
    assert np.array_equal(model.item_factors, shorter.item_factors)


# The signal may come between the opening of a checkpoint and the statement that would close it. Python closes that file
# itself, with a warning that nobody can prevent.
@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_fit_that_is_terminated_writes_no_model(fairmf, tmp_path):
    write_events(tmp_path / "events.csv")

    def untaken(*_):
        raise AssertionError("the command line left the signal to the process")

    def terminate():
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("kept/*.checkpoint")) and time.monotonic() < deadline:
            time.sleep(0.02)
        signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, untaken)
    sender = threading.Thread(target=terminate)
    try:
        sender.start()
        done = fairmf(*LONG_FIT)
        sender.join()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert done.code == failures.INTERRUPTED, done.err
    assert "Traceback" not in done.err
    assert "Interrupted" in done.err
    assert not (tmp_path / "m.fairmf").exists()
    assert not [file for file in tmp_path.iterdir() if file.suffix == ".tmp"]
    assert "keeps epoch" not in done.err  # what the library says to those who get a model


def test_a_fit_that_goes_on_says_so(fairmf, made):
    """What the library logs is a note."""
    flags = ("-o", "m.fairmf", "--factors", 2, "--epochs", 2, "--checkpoint", "kept")
    assert fairmf("fit", made / "split", *flags).code == 0
    assert "epoch 2" in fairmf("fit", made / "split", *flags).err
    assert fairmf("fit", made / "split", *flags, "-q").err == ""
    assert not logging.getLogger("fairmf").handlers


def test_what_is_wrong_with_settings_or_output_is_said_before_anything_is_read(fairmf, tmp_path):
    (tmp_path / "out").mkdir()
    assert "'factors'" in fairmf("fit", "no-such.csv", "-o", "m.fairmf", "--factors", 0).err
    assert "it is a folder" in fairmf("fit", "no-such.csv", "-o", "out").err
    assert "lists.xls" in fairmf("recommend", "no-such.fairmf", "-o", "lists.xls").err


# Processes whose output nobody reads, which end as any other; all from one that has imported what they need.
NO_READERS = """
import json, os, sys
import fairmf.cli.inspect, fairmf.data.datasets, fairmf.data.sniff, pandas, rich.table
from fairmf.cli import main
for arguments in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        reader, writer = os.pipe()
        os.close(reader)
        os.dup2(writer, 1)
        main(arguments)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_a_reader_that_goes_away_is_no_trouble(made):
    runs = [["inspect", "events.csv"], ["inspect", "events.csv", "--json"], ["--help"]]
    command = [sys.executable, "-c", NO_READERS, json.dumps(runs)]
    done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [str(failures.NO_READER)] * 3, done.stderr
    assert "Error" not in done.stderr
    assert "Traceback" not in done.stderr


def test_it_runs_as_a_process_and_returns_codes(made, tmp_path):
    done = process("inspect", str(made / "events.csv"), "--json", cwd=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["users"] == 150
    assert process("inspect", "none.csv", cwd=tmp_path).returncode == failures.PROBLEM


def test_commands_can_be_listed_by_tools():
    group = __import__("typer").main.get_command(__import__("fairmf.cli.app", fromlist=["app"]).app)
    assert isinstance(group, Verbs)
    assert group.get_command(None, "fit").params
    assert group.get_command(None, "nonsense") is None
    assert run(["--version"]) == 0


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (errors.InvalidData("x", hint="lower {parameter}", parameter="rating_above"), "lower --rating-above"),
        (errors.InvalidData("x", hint="rename {parameter}", parameter="weights"), "rename --weight"),
        (errors.InvalidData("x", hint="see {parameter}", parameter="no_flag_of_this_verb"), "see no_flag_of_this_verb"),
        (errors.InvalidParameter("x", parameter="encoding"), "--help lists the range and the default of --encoding"),
        (errors.InvalidParameter("x"), "--help lists ranges and defaults"),
        (errors.LicenceNotAccepted("x", dataset="ml-1m"), "to accept them: fairmf datasets fetch ml-1m --yes"),
        (errors.InvalidData("x; y."), None),
    ],
)
def test_hints_come_from_fields_and_speak_of_flags(error, hint, fairmf, monkeypatch):
    def broken(*_, **__):
        raise error

    monkeypatch.setattr("fairmf.cli.inspect.read_events", broken)
    lines = fairmf("inspect", "events.csv").err.splitlines()
    assert lines[1:] == ([] if hint is None else [f"hint: {hint}"])


def test_log_records_are_recognised_by_their_kind(fairmf, monkeypatch):
    def logged(*_, **__):
        log = logging.getLogger("fairmf")
        log.warning("not shown", extra={"kind": "interrupted"})
        log.info("not shown", extra={"kind": "compiling"})
        log.info("interrupted is only a word here")
        raise errors.InvalidData("x")

    monkeypatch.setattr("fairmf.cli.inspect.read_events", logged)
    assert fairmf("inspect", "events.csv").err.splitlines() == ["interrupted is only a word here", "Error: x."]
