"""Serve a model over HTTP: `fairmf serve model.fairmf`, or `app(model)` for a server of your own (extra `[serve]`).

docs/serving.md says how to use it; docs/decisions has why it is built this way. A request goes through `application`
(HTTP), `routes` (checks), `micro_batches` (the queue) and `answers` (the library).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from fairmf.errors import MissingDependency
from fairmf.version import install_command

if TYPE_CHECKING:
    from fairmf.models.factor_model import FactorModel
    from fairmf.serve.application import Application
    from fairmf.serve.served_model import Catalogue
    from fairmf.serve.settings import Settings

__all__ = ["app"]


def app(
    model: FactorModel | str | os.PathLike[str],
    *,
    settings: Settings | None = None,
    catalogue: Catalogue | None = None,
) -> Application:
    """Return an ASGI application that answers from a model, for any ASGI server.

    Parameters
    ----------
    model
        A fitted model, or the path of a model file, which is mapped and verified.
    settings
        Limits, time-outs, keys (`fairmf.serve.settings.Settings`).
    catalogue
        Titles and groups of items (`fairmf.serve.served_model.Catalogue`).

    Returns
    -------
    An application with all routes of `fairmf serve`. It does not reload: replace it when the model changes.

    Raises
    ------
    BrokenFile
        If the file is damaged.
    InvalidData
        If this is no model that answers single requests, such as FairRec, which allocates lists for a whole cohort.
    MissingDependency
        If msgspec is not installed.

    Examples
    --------
    >>> from fairmf import IALS, synthetic
    >>> from fairmf.serve import app
    >>> model = IALS(factors=4, epochs=2).fit(synthetic(60, 40, 600), progress=False)
    >>> application = app(model)  # then: uvicorn module:application
    """
    try:
        import msgspec  # noqa: F401
    except ImportError as error:
        raise MissingDependency(f"Serving needs msgspec and uvicorn: {install_command('serve')}") from error
    from fairmf.serve.application import Application
    from fairmf.serve.routes import LABELS
    from fairmf.serve.served_model import ServedModel, servable
    from fairmf.serve.service import Service
    from fairmf.serve.settings import Settings

    chosen = Settings() if settings is None else settings
    if isinstance(model, (str, os.PathLike)):
        served = ServedModel.load(Path(model), catalogue, chosen.num_threads)
    else:
        served = ServedModel.of(servable(model), catalogue)
    served = served.with_parts(chosen)
    served.warm()
    return Application(Service(served, chosen, LABELS), chosen)
