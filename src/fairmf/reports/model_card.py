"""Write the card of a model from its file and its run records: a README.md as the Hugging Face Hub shows it.

The front matter (YAML between lines of ---) is what the Hub indexes; the text below is for people. Nothing is uploaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fairmf.errors import BrokenFile, InvalidData
from fairmf.reports.run_record import RECORD_KEY, parse_toml
from fairmf.text import visible
from fairmf.version import __version__

if TYPE_CHECKING:
    import os

    from fairmf.models.factor_model import FactorModel
    from fairmf.types import Record

SHOWN = ("ndcg", "recall", "gini", "coverage", "tail_share")
"""Metrics of the card, where the evaluation has them; the record has all."""
TAGS = ("recommender-systems", "collaborative-filtering", "matrix-factorization", "fairness", "implicit-feedback")
_EVENNESS = (0.0, 0.25, 0.5, 0.75, 1.0)


def model_card(
    model: FactorModel,
    records: Sequence[Record | str | os.PathLike[str]] = (),
    *,
    name: str = "model",
    license: str | None = None,
    dataset: str | None = None,
) -> str:
    """Return the card of a model as Markdown with YAML front matter.

    Parameters
    ----------
    model
        A fitted model of factors.
    records
        Run records of `fairmf fit` and `fairmf evaluate`, as paths or as what they hold. Data, settings, measured
        values and commands are taken from them; without any, the card says what the model itself knows.
    name
        Name of the model; the file is called NAME.fairmf in the example.
    license
        Licence of the model as the Hub names it ("apache-2.0").
    dataset
        Name of the data. Default: the source in the record of `fairmf fit`.

    Returns
    -------
    str

    Raises
    ------
    BrokenFile
        If a record cannot be read.
    InvalidData
        If the record of a fit belongs to a model of another size.

    Examples
    --------
    >>> from fairmf import FairALS, synthetic
    >>> model = FairALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> print(*model_card(model, name="films", license="apache-2.0").splitlines()[:3], sep=" / ")
    --- / library_name: fairmf / license: "apache-2.0"
    """
    read = [record if isinstance(record, dict) else read_record(Path(record)) for record in records]
    fits = [record for record in read if record.get("verb") == "fit"]
    for fit in fits:
        sizes = (fit.get("result", {}).get("users"), fit.get("result", {}).get("items"))
        if None not in sizes and sizes != (model.n_users, model.n_items):
            raise InvalidData(
                f"The record of the fit is of {sizes[0]:,} users and {sizes[1]:,} items, the model has "
                f"{model.n_users:,} and {model.n_items:,}: it belongs to another model."
            )
    data = dataset or next((_source(fit) for fit in fits), "unnamed")
    tests = [record for record in read if record.get("verb") == "evaluate" and record.get("metrics")]
    parts = [
        *_front_matter(name, license, data, tests), *_summary(model, name), *_use(model, name),
        *_training(model, fits, data), *_measured(tests), *_evenness(model), *_limits(model, tests), *_again(read),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def read_record(path: Path) -> Record:
    """Read a run record, TOML or JSON."""
    try:
        text = path.read_text(encoding="utf-8")
        found = dict(json.loads(text)) if path.suffix.lower() == ".json" else parse_toml(text)
    except (OSError, ValueError) as error:
        raise BrokenFile(f"{path} cannot be read as a run record: {error}") from error
    if RECORD_KEY not in found:
        raise BrokenFile(f"{path} is not a run record of fairmf.")
    return found


# -- parts, as lines --------------------------------------------------------------------------------------------------


def _front_matter(name: str, licence: str | None, data: str, tests: list[Record]) -> Iterator[str]:
    """Yield the YAML. Every text is written as JSON writes it, which YAML reads."""
    yield "---"
    yield "library_name: fairmf"
    if licence is not None:
        yield f"license: {json.dumps(licence)}"
    yield "tags:"
    yield from (f"- {tag}" for tag in TAGS)
    if tests:
        yield "model-index:"
        yield f"- name: {json.dumps(name)}"
        yield "  results:"
    for test in tests:
        yield "  - task:"
        yield "      type: recommendation"
        yield "    dataset:"
        yield f"      name: {json.dumps(data)}"
        yield f"      type: {json.dumps(data)}"
        yield f"      split: {json.dumps(_part(test))}"
        yield "    metrics:"
        for metric, value in _values(test):
            yield f"    - type: {json.dumps(metric)}"
            yield f"      value: {value:.6g}"
    yield "---"


def _summary(model: FactorModel, name: str) -> Iterator[str]:
    yield from ("", f"# {_text(name)}", "")
    yield (
        f"A {type(model).__name__} with {model.item_factors.shape[1]} factors for {model.n_users:,} users and "
        f"{model.n_items:,} items, made with fairmf {__version__}. It recommends items from what people had before, "
        "and can spread the places in the lists over more items (evenness)."
    )


def _use(model: FactorModel, name: str) -> Iterator[str]:
    ids = model.fitted.item_ids
    some = list(range(2)) if ids is None else ids.values[:2].tolist()
    yield from ("", "## Use", "", "```python", "from fairmf import load_model", "")
    yield f"model = load_model({name + '.fairmf'!r})"
    yield f"ids, scores = model.recommend_for({some!r}, N=10, evenness=0.3)  # what somebody had, and a list"
    yield "```"


def _training(model: FactorModel, fits: list[Record], data: str) -> Iterator[str]:
    fitted = model.fitted
    yield from ("", "## Training", "")
    for fit in fits:
        for part, facts in fit.get("data", {}).items():
            yield (
                f"Data: {_text(data)} ({_text(part)}), {facts['users']:,} users, {facts['items']:,} items, "
                f"{facts['interactions']:,} interactions, fingerprint `{_text(facts['fingerprint'])[:16]}`. "
            )
        result = fit.get("result", {})
        if "fit_seconds" in result:
            yield f"The fit took {result['fit_seconds']:.1f} seconds, {result.get('epochs', '?')} epochs."
    yield from ("", "| setting | value |", "|---|---|")
    yield from (f"| {setting} | {_text(value)} |" for setting, value in fitted.settings.items() if value is not None)


def _measured(tests: list[Record]) -> Iterator[str]:
    if not tests:
        yield from ("", "## Measured", "", "No evaluation was given to this card.")
        return
    yield from ("", "## Measured", "")
    for test in tests:
        facts = test.get("result", {})
        asked = facts.get("evenness")
        level = "without evenness" if asked is None else f"at evenness {asked:g}"
        count = facts.get("n_users")
        yield f"{'' if count is None else f'{count:,} '}{_text(_part(test))} users, {level}:"
        yield from ("", "| metric | value |", "|---|---|")
        yield from (f"| {_text(metric)} | {value:.4f} |" for metric, value in _values(test))
        yield ""
    yield "nDCG and recall are accuracy (higher is better); Gini is how unequally items are shown (lower is more even)."


def _evenness(model: FactorModel) -> Iterator[str]:
    path = model.fitted.path
    yield from ("", "## Evenness", "")
    if path is None:
        yield "The model is not calibrated: what an evenness costs was not measured (`fairmf calibrate`)."
        return
    facts = path.to_dict()
    yield f"As calibrated on {facts['n_users']:,} validation users:"
    yield from ("", f"| evenness | Gini@{facts['at']} | {_text(facts['quality'])} |", "|---|---|---|")
    for evenness in _EVENNESS:
        gini, quality = path.expected(evenness)
        yield f"| {evenness:g} | {gini:.4f} | {quality:.4f} |"


def _limits(model: FactorModel, tests: list[Record]) -> Iterator[str]:
    yield from ("", "## Limits", "")
    yield "* It knows the items of its training data, and those added later. Who likes what has changed since."
    yield (
        "* Evenness spreads exposure over items. It does not make lists fair to every group of users or sellers: audit "
        "them (`fairmf audit`)."
    )
    if model.fitted.interactions is not None:
        yield (
            "* **The file holds the histories of its training users.** Before publishing it, store it without: "
            "`model.save(path, interactions=False)`. User vectors stay in it."
        )
    if not tests:
        yield "* Its accuracy was not measured for this card."


def _again(records: list[Record]) -> Iterator[str]:
    if not records:
        return
    yield from ("", "## How it was made", "")
    for record in records:
        made = record.get("versions", {})
        with_ = ", ".join(f"{_text(key)} {_text(value)}" for key, value in made.items())
        yield f"* `fairmf {_text(record.get('verb', '?'))}`, {_text(record.get('started', '?'))}, {with_}"


def _source(fit: Record) -> str:
    return Path(str(fit.get("settings", {}).get("data", "unnamed"))).name


def _part(test: Record) -> str:
    return str(test.get("result", {}).get("part") or test.get("settings", {}).get("part") or "test")


def _values(test: Record) -> list[tuple[str, float]]:
    found = test["metrics"]
    return [(m, float(v)) for m, v in found.items() if m.partition("@")[0] in SHOWN and isinstance(v, (int, float))]


def _text(value: object) -> str:
    """Return text for one line of Markdown: visible, and without what ends a cell or begins a tag."""
    return visible(value, one_line=True).replace("|", "\\|").replace("<", "&lt;").replace("`", "'")
