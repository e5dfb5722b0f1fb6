"""Run an experiment: compute and store the missing pieces, then write the table, the plots and results.json."""

from __future__ import annotations

import csv
import io
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fairmf.data.split import Split
from fairmf.errors import InvalidData, MissingDependency
from fairmf.io import strict_json
from fairmf.io.atomic import replacing
from fairmf.models.progress import progress_bar
from fairmf.reports import plots
from fairmf.reproduce.data import Data
from fairmf.reproduce.estimate import Estimate, Speed, estimate, measure_speed, shape_of
from fairmf.reproduce.kinds import kind_of, later_pieces, total
from fairmf.reproduce.measure import measure
from fairmf.reproduce.pieces import FORMAT, Outcome, Piece, Result, Store
from fairmf.reproduce.spec import Experiment
from fairmf.reproduce.spec import experiment as experiment_named
from fairmf.reproduce.tables import Row, diverged
from fairmf.types import Record
from fairmf.version import versions

PIECES, RESULTS = "pieces", "results.json"


def reproduce(
    experiment: Experiment,
    data: Data,
    folder: str | os.PathLike[str],
    *,
    seeds: int | None = None,
    epochs: int | None = None,
    without: Sequence[str] = (),
    progress: bool | None = None,
    measure: Callable[[Piece, Split], Result] = measure,
) -> Reproduction:
    """Compute the missing pieces of an experiment, then write its table, plots and results.json.

    Stored pieces are not computed again, so the same call continues a run that was killed. With other settings, seeds
    or data, pieces are other ones and are computed.
    """
    run = open_run(experiment, data, folder, seeds=seeds, epochs=epochs, without=without)
    computed = 0
    done, missing = run.done()
    with progress_bar(experiment.name, total(run.experiment), progress) as advance:
        advance("", len(done))
        # One pass per round: after the last piece of a round, `done` may find the pieces of the next.
        while missing:
            for piece in missing:
                if run.store.read(piece) is None:  # another series may have had the same fit
                    began = time.perf_counter()
                    result = measure(piece, data.split)
                    run.store.write(piece, result, time.perf_counter() - began)
                    computed += 1
                advance(piece.series)
            done, missing = run.done()
    rows = kind_of(run.experiment).rows(run.experiment, done)
    results, files = write_results(run.experiment, data.facts, done, rows, run.folder)
    return Reproduction(results, tuple(rows), tuple(files), computed)


def rebuild(path: str | os.PathLike[str], folder: str | os.PathLike[str]) -> Reproduction:
    """Write table, plots and results.json anew from a stored results.json (a file or its folder), without training."""
    whole, outcomes, stored = read_results(path)
    rows = kind_of(whole).rows(whole, outcomes)
    results, files = write_results(whole, stored["data"], outcomes, rows, Path(folder), stored["versions"])
    return Reproduction(results, tuple(rows), tuple(files), 0)


def read_results(path: str | os.PathLike[str]) -> tuple[Experiment, list[Outcome], Record]:
    """Read a results.json (a file or its folder): the experiment as it was run, its fits, and the whole content."""
    place = Path(path)
    file = place / RESULTS if place.is_dir() else place
    try:
        stored: Record = strict_json.parse(file.read_text(encoding="utf-8"), str(file))
        whole = experiment_named(stored["experiment"]).on(stored["data"]["settings_of"])
        whole = whole.limited(seeds=int(stored["seeds"]), epochs=None, without=())
        outcomes = []
        for one in stored["pieces"]:
            piece = Piece(one["series"], one["model"], one["settings"], one["how"])
            outcomes.append(Outcome(piece, one["result"], one["seconds"], one["key"]))
        stored["versions"]
    except OSError as error:
        raise InvalidData(f"{file} cannot be read: {error.strerror}.") from error
    except (UnicodeDecodeError, strict_json.Malformed, KeyError, TypeError, ValueError) as error:
        raise InvalidData(f"{file} holds no results of `fairmf reproduce`: {error}.") from error
    return whole, outcomes, stored


@dataclass(frozen=True)
class Reproduction:
    """The result: the content of results.json, its rows, the files written, and how many pieces were computed."""

    results: Result
    rows: tuple[Row, ...]
    files: tuple[Path, ...]
    computed: int


@dataclass(frozen=True)
class Run:
    """An experiment with its data and its folder, ready to run."""

    experiment: Experiment
    data: Data
    folder: Path
    store: Store

    def plan(self, done: Sequence[Outcome] = ()) -> list[Piece]:
        """Return the pieces that are known so far, without duplicates."""
        pieces: dict[str, Piece] = {}
        for piece in kind_of(self.experiment).plan(self.experiment, list(done)):
            # Two series may have the same fit: both list it, and its stored result serves both.
            pieces.setdefault(f"{piece.series} {piece.key(self.data.fingerprint)}", piece)
        return list(pieces.values())

    def done(self) -> tuple[list[Outcome], list[Piece]]:
        """Return the stored outcomes of all rounds known so far, and the missing pieces."""
        found: list[Outcome] = []
        while True:  # one pass per round: a later round is known when the pieces of the one before are done
            pieces = self.plan(found)
            read = [self.store.read(piece) for piece in pieces]
            missing = [piece for piece, outcome in zip(pieces, read, strict=True) if outcome is None]
            now = [outcome for outcome in read if outcome is not None]
            if missing or len(now) == len(found):
                return now, missing
            found = now

    def estimate(self, speed: Speed | None = None) -> Estimate:
        """Estimate the pieces that are left; measure the speed of this machine unless it is given."""
        found, missing = self.done()
        to_come = total(self.experiment) - len(found) - len(missing)  # pieces of a later round, which depend on results
        left = [*missing, *later_pieces(self.experiment)[:to_come]]
        return estimate(self.experiment, shape_of(self.data), measure_speed() if speed is None else speed, left)


def open_run(
    experiment: Experiment,
    data: Data,
    folder: str | os.PathLike[str],
    *,
    seeds: int | None = None,
    epochs: int | None = None,
    without: Sequence[str] = (),
) -> Run:
    """Prepare a run: apply the settings for these data, the numbers of seeds and epochs, and leave out models."""
    # First the changes for the data, which may set seeds and epochs, then what the caller asks for.
    fitted = experiment.on(data.name).limited(seeds=seeds, epochs=epochs, without=tuple(without))
    place = Path(folder)
    return Run(fitted, data, place, Store(place / PIECES, data.fingerprint))


# -- files: results.json (everything), table.md and table.csv, and plots as SVG ---------------------------------------


def write_results(
    experiment: Experiment,
    facts: Record,
    outcomes: list[Outcome],
    rows: list[Row],
    folder: Path,
    made_with: Record | None = None,
) -> tuple[Result, list[Path]]:
    """Write all files; return the content of results.json and the paths. Plots need the extra `[report]`.

    `facts` are those of the data, and `made_with` the versions that computed the pieces, by default the present ones.
    """
    kind = kind_of(experiment)
    results = _results(experiment, facts, outcomes, rows) | ({} if made_with is None else {"versions": made_with})
    # The paper's numbers can be reached only on the paper's data.
    same = facts["settings_of"] == experiment.data
    texts = {
        RESULTS: json.dumps(results, allow_nan=False) + "\n",
        "table.md": markdown(experiment, results, rows, same_data=same),
        "table.csv": as_csv(rows, same_data=same),
    }
    files = []
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
        files.append(folder / name)
    title = f"{experiment.title.partition(':')[0]}, {facts['name']}"
    try:
        figures = kind.draw(experiment, outcomes, title)
    except MissingDependency:
        figures = {}  # the results are complete without plots; the command line warns that there are none
    files += [plots.save(figure, folder / f"{name}.svg") for name, figure in figures.items()]
    return results, files


def _results(experiment: Experiment, facts: Record, outcomes: list[Outcome], rows: list[Row]) -> Result:
    same = facts["settings_of"] == experiment.data
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "kind": experiment.kind,
        "papers_data": experiment.data,
        "data": facts,
        "on_the_papers_data": same,
        "seeds": experiment.seeds,
        "rows": [_row(row, same) for row in rows],
        "diverged": diverged(outcomes, experiment),
        "pieces": [
            {"key": one.key, "series": one.piece.series, "model": one.piece.model, "settings": one.piece.settings,
             "how": one.piece.how, "seconds": one.seconds, "result": one.result}
            for one in outcomes
        ],
        "piece_format": FORMAT,
        "versions": versions(),
    }  # fmt: skip


def _row(row: Row, same: bool) -> Result:
    measured = {
        metric: {"mean": value.mean, "spread": value.spread, "runs": value.runs}
        for metric, value in row.measured.items()
    }
    told: Result = {**row.label, "measured": measured}
    if row.quoted:
        told["quoted"] = {metric: {"value": value, "tolerance": row.tolerance} for metric, value in row.quoted.items()}
        if row.quoted_at:
            told["quoted_at"] = row.quoted_at
        told["verdict"] = {metric: row.verdict(metric, same_data=same) for metric in row.quoted}
    if row.test:
        told["test"] = row.test
    return told


def markdown(experiment: Experiment, results: Result, rows: list[Row], *, same_data: bool) -> str:
    """Return the table as Markdown: measured numbers as mean ± spread, the paper's numbers in separate columns."""
    data = results["data"]
    sizes = f"{data['users']:,} users, {data['items']:,} items, {data['interactions']:,} interactions"
    lines = [
        f"# {experiment.title}, on {data['name']}",
        "",
        experiment.about.strip(),
        "",
        f"Measured on {data['name']} (training part: {sizes}; {data['test_users']:,} test users), mean ± standard "
        f"deviation over seeds where there are several. " + _about_paper(rows, experiment, same_data=same_data),
        "",
    ]
    shown = [row for row in rows if row.shown]
    labels, metrics, quoted = columns(shown)
    tests = [row.test for row in shown if row.test]
    heads = [*labels, *metrics, *(f"{metric}, paper (quoted)" for metric in quoted)]
    if tests:
        heads.insert(len(labels) + len(metrics), f"{tests[0]['metric']} minus {tests[0]['baseline']} (p)")
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for row in shown:
        cells = [str(row.label.get(name, "")) for name in labels]
        cells += [measured_cell(row, metric) for metric in metrics]
        cells += [difference_cell(row)] if tests else []
        cells += [_quoted_cell(row, metric, same_data=same_data) for metric in quoted]
        lines.append("| " + " | ".join(cells) + " |")
    if results["diverged"]:
        lines += ["", "Diverged:", "", *(f"* {line}" for line in results["diverged"])]
    return "\n".join(lines) + "\n"


def as_csv(rows: list[Row], *, same_data: bool) -> str:
    """Return all rows as CSV: mean, spread and runs of every metric, then the paper's numbers and the verdicts."""
    labels, metrics, quoted = columns(rows)
    heads = [*labels]
    for metric in metrics:
        heads += [metric, f"{metric} spread", f"{metric} runs"]
    for metric in quoted:
        heads += [f"{metric} quoted", f"{metric} verdict"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    for row in rows:
        cells: list[object] = [row.label.get(name, "") for name in labels]
        for metric in metrics:
            value = row.measured.get(metric)
            cells += ["", "", ""] if value is None else [value.mean, value.spread, value.runs]
        for metric in quoted:
            cells += [row.quoted.get(metric, ""), row.verdict(metric, same_data=same_data)]
        writer.writerow(cells)
    return text.getvalue()


def columns(rows: list[Row]) -> tuple[list[str], list[str], list[str]]:
    """Return the names of the labels, of the measured metrics and of the quoted metrics."""
    labels = dict.fromkeys(name for row in rows for name in row.label)
    metrics = dict.fromkeys(name for row in rows for name in row.measured)
    quoted = dict.fromkeys(name for row in rows for name in row.quoted)
    return list(labels), list(metrics), list(quoted)


def _about_paper(rows: list[Row], experiment: Experiment, *, same_data: bool) -> str:
    if not any(row.quoted for row in rows):
        return "The paper shows this as a picture, without numbers."
    if same_data:
        return "The paper's numbers are quoted, with whether ours are within the tolerance."
    return f"The paper's numbers are quoted; they are of {experiment.data}, other data, and no goal here."


def measured_cell(row: Row, metric: str) -> str:
    """Write mean ± spread."""
    value = row.measured.get(metric)
    if value is None:
        return ""
    digits = _format(value.mean)
    spread = "" if value.spread is None else f" ± {value.spread:{digits}}"
    return f"{value.mean:{digits}}{spread}"


def difference_cell(row: Row) -> str:
    """Write the difference from the baseline and its p-value."""
    if not row.test:
        return ""
    p = row.test["p_holm"]
    return f"{row.test['difference']:+.4f} ({'< 0.001' if p < 0.001 else f'{p:.3f}'})"


def _quoted_cell(row: Row, metric: str, *, same_data: bool) -> str:
    if metric not in row.quoted:
        return ""
    if row.quoted_at:
        return f"{row.quoted[metric]:.3f} ({row.quoted_at})"
    verdict = f" ({row.verdict(metric, same_data=True)} {row.tolerance:g})" if same_data else ""
    return f"{row.quoted[metric]:.3f}{verdict}"


def _format(value: float) -> str:
    """Return the format of a number: four decimals for numbers of usual size, no decimals from 1,000 on."""
    if abs(value) >= 1000:
        return ",.0f"
    return ".4f" if 0.001 <= abs(value) < 100 or value == 0 else ".4g"
