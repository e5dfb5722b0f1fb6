"""Plots as files: the same figure gives the same bytes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairmf.errors import InvalidParameter
from fairmf.files.atomic import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}


def save(figure: Figure, path: str | os.PathLike[str], *, dpi: int = 200) -> Path:
    """Write a figure as SVG, PNG or PDF, by the file's ending; an older file is replaced in one step."""
    import matplotlib

    target = Path(path)
    kind = target.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise InvalidParameter(f"A plot is saved as .svg, .png or .pdf. Got {target.name!r} instead.")
    metadata: Any = FORMATS[kind]
    with matplotlib.rc_context({"svg.hashsalt": "fairmf", "svg.fonttype": "path"}), replacing(target) as file:
        figure.savefig(file, format=kind, dpi=dpi, facecolor=figure.get_facecolor(), metadata=metadata)
    return target
