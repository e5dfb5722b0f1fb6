"""What a benchmark hands back: a table, the sentences it supports, and whether its claims hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Result:
    """One section of RESULTS.md."""

    title: str
    what: str
    header: Sequence[str]
    rows: list[Sequence[object]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The section as Markdown."""
        lines = [f"## {self.title}", "", self.what, ""]
        lines.append("| " + " | ".join(self.header) + " |")
        lines.append("|" + "---|" * len(self.header))
        lines += ["| " + " | ".join(text_of(cell) for cell in row) + " |" for row in self.rows]
        return "\n".join([*lines, "", *(f"* {finding}" for finding in self.findings), ""])


def text_of(cell: object) -> str:
    """A cell as the table shows it."""
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
