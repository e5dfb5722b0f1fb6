"""Completion of words that are known: names of models, of data sets, of solvers."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def starting(words: Iterable[str] | Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """A function for typer's `autocompletion=`: those of the words that begin with what is typed already."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in (words() if callable(words) else words) if word.startswith(incomplete)]

    return complete
