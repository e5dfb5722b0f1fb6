"""Lists on the command line: values with commas between them."""

from __future__ import annotations

from fairmf.cli.failures import Problem


def comma_list(text: str | None) -> list[str] | None:
    """The parts between commas; None stays None."""
    return None if text is None else [part.strip() for part in text.split(",") if part.strip()]


def integers(flag: str, text: str) -> list[int]:
    """Whole numbers between commas."""
    try:
        return [int(part) for part in comma_list(text) or []]
    except ValueError:
        raise Problem(
            f"{flag} takes whole numbers with commas between them. Got {text!r} instead.", f"{flag} 20,100"
        ) from None


def numbers(flag: str, text: str) -> list[float]:
    """Numbers between commas."""
    try:
        return [float(part) for part in comma_list(text) or []]
    except ValueError:
        raise Problem(
            f"{flag} takes numbers with commas between them. Got {text!r} instead.", f"{flag} 0,0.5,1"
        ) from None
