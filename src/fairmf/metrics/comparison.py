"""Hold the result of `compare`: values of all models, tests of all pairs, and tables for people and for LaTeX."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from fairmf.metrics.registry import parse_metric
from fairmf.types import Record

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class PairedTest:
    """One metric of two models: difference first - second, interval, and p-values before and after correction.

    `p` is that of the randomisation test and `p_bootstrap` that of the paired bootstrap; `p_holm` and
    `p_bootstrap_holm` are corrected for all tests of the comparison. `exact` says that all swaps were tried.
    """

    metric: str
    first: str
    second: str
    difference: float
    low: float
    high: float
    p: float
    p_bootstrap: float
    p_holm: float
    p_bootstrap_holm: float
    n_users: int
    exact: bool


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    values
        values["ndcg@20"]["model"] is the value of a metric for a model.
    tests
        A test per metric and pair of models.
    alpha, confidence
        The level of significance, and the confidence of the intervals.

    Examples
    --------
    >>> from fairmf.metrics.comparison import Comparison
    >>> Comparison({"ndcg@20": {"a": 0.3, "b": 0.2}}, ()).best("ndcg@20")
    'a'
    """

    values: Mapping[str, Mapping[str, float]]
    tests: tuple[PairedTest, ...]
    alpha: float = 0.05
    confidence: float = 0.95

    @property
    def names(self) -> list[str]:
        """The models, in the order in which they were given."""
        return list(next(iter(self.values.values()), {}))

    def best(self, metric: str) -> str:
        """Return the model with the best value of a metric."""
        sign = -1.0 if parse_metric(metric).lower_is_better else 1.0
        of = self.values[metric]
        return max(of, key=lambda name: -math.inf if math.isnan(of[name]) else sign * of[name])

    def beaten(self, metric: str, name: str) -> list[str]:
        """Return the models that are worse than this one by a significant difference."""
        lower, found = parse_metric(metric).lower_is_better, []
        for test in self.tests:
            if test.metric != metric or name not in (test.first, test.second) or not test.p_holm < self.alpha:
                continue
            gain = test.difference if test.first == name else -test.difference
            if (gain < 0) == lower and gain != 0:
                found.append(test.second if test.first == name else test.first)
        return found

    def table(self) -> list[Record]:
        """Return a row per test: metric, models, their values, difference, interval, p-values, significance."""
        rows = []
        for test in self.tests:
            of = self.values[test.metric]
            row: Record = {"metric": test.metric, "first": test.first, "second": test.second}
            row |= {"first_value": of[test.first], "second_value": of[test.second]}
            rest = {k: v for k, v in dataclasses.asdict(test).items() if k not in row}
            rows.append(row | rest | {"significant": bool(test.p_holm < self.alpha)})
        return rows

    def to_dict(self) -> Record:
        """Return values and tests as plain Python values for JSON; NaN becomes None."""
        tests = [{key: _plain(value) for key, value in row.items()} for row in self.table()]
        values = {m: {name: _plain(v) for name, v in of.items()} for m, of in self.values.items()}
        return {"alpha": self.alpha, "confidence": self.confidence, "values": values, "tests": tests}

    def to_latex(self, digits: int = 4) -> str:
        r"""Return a LaTeX tabular: a row per model, a column per metric.

        The best value of each column is bold. Every model has a letter; a value has the letters of the models that it
        beats significantly (randomisation test, Holm's correction). No package is needed.
        """
        letters = {name: _letter(k) for k, name in enumerate(self.names)}
        heads = [f"{_escaped(parse_metric(m).title)} ${_arrow(m)}$" for m in self.values]
        lines = [
            rf"\begin{{tabular}}{{l{'r' * len(heads)}}}", r"\hline",
            " & ".join(["model", *heads]) + r" \\", r"\hline",
        ]  # fmt: skip
        for name, letter in letters.items():
            cells = [f"$^{{{letter}}}$ {_escaped(name)}"]
            for metric, of in self.values.items():
                text = "--" if math.isnan(of[name]) else f"{of[name]:.{digits}f}"
                text = rf"\textbf{{{text}}}" if name == self.best(metric) and not math.isnan(of[name]) else text
                marks = "".join(letters[other] for other in self.names if other in self.beaten(metric, name))
                cells.append(text + (f"$^{{{marks}}}$" if marks else ""))
            lines.append(" & ".join(cells) + r" \\")
        return "\n".join([*lines, r"\hline", r"\end{tabular}"])

    def __repr__(self) -> str:
        lines = [f"Comparison({len(self.names)} models, {len(self.tests)} tests, Holm-corrected, alpha {self.alpha:g})"]
        width = max((len(m) for m in self.values), default=0)
        for test in self.tests:
            of = self.values[test.metric]
            mark = " *" if test.p_holm < self.alpha else ""
            lines.append(
                f"  {test.metric:<{width}}  {test.first} {of[test.first]:.4f} - {test.second} {of[test.second]:.4f} = "
                f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}], p {test.p_holm:.4f}{mark}"
            )
        return "\n".join(lines)


def _arrow(metric: str) -> str:
    return r"\downarrow" if parse_metric(metric).lower_is_better else r"\uparrow"


def _letter(k: int) -> str:
    return chr(ord("a") + k) if k < 26 else f"({k + 1})"


def _escaped(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _plain(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value
