"""Define the errors that fairmf raises; each is also the built-in exception that a caller would catch."""

from __future__ import annotations


class FairmfError(Exception):
    """Base of all errors raised by fairmf.

    Programs read the fields, people read `str(error)`, which is the message and the hint. Code must not search messages
    for words.

    Parameters
    ----------
    *args
        The message: what is wrong. Errors that are an `OSError` may take an error number before it.
    hint : str, optional
        What to do about it. `{parameter}` stands for the name of the parameter; the command line puts its flag there.
    parameter : str, optional
        The argument or setting that is wrong, by its name in Python.

    Examples
    --------
    >>> str(InvalidData("No rows are left.", hint="lower {parameter}", parameter="rating_above"))
    'No rows are left; lower rating_above.'
    """

    def __init__(self, *args: object, hint: str | None = None, parameter: str | None = None):
        super().__init__(*args)
        self.hint = hint
        self.parameter = parameter

    @property
    def message(self) -> str:
        """The message without the hint and without an error number."""
        return str(getattr(self, "strerror", None) or super().__str__())

    def hint_for(self, name: str | None) -> str:
        """Return the hint with `name` (an argument or a flag) in place of `{parameter}`; empty if there is no hint."""
        return (self.hint or "").replace("{parameter}", name or "the parameter")

    def __str__(self) -> str:
        text = super().__str__()
        if not self.hint:
            return text
        hint = self.hint_for(self.parameter)
        return f"{text.removesuffix('.')}; {hint}{'' if hint.endswith(('?', '.')) else '.'}"


class InvalidData(FairmfError, ValueError):
    """The interactions, or the file they were read from, cannot be used as they are."""


class UnknownItems(InvalidData):
    """A history, or a list of items, names items that the model does not know: `unknown` holds them, each once."""

    def __init__(
        self, *args: object, unknown: tuple[object, ...] = (), hint: str | None = None, parameter: str | None = None
    ):
        super().__init__(*args, hint=hint, parameter=parameter)
        self.unknown = unknown


class InvalidParameter(FairmfError, ValueError):
    """A setting or argument is outside its range."""


class UnknownParameter(InvalidParameter, TypeError):
    """There is no setting or argument of this name."""


class UnknownId(InvalidData, IndexError):
    """A user or an item is not in the model."""


class NotFitted(FairmfError, RuntimeError, AttributeError):
    """The model has not been fitted yet. `hasattr(model, "item_factors")` is False then."""


class NotFinite(FairmfError, ArithmeticError):
    """Training produced a number that is not finite; the model keeps the last good epoch."""


class MissingDependency(FairmfError, ImportError):
    """An optional feature needs a package that is not installed."""


class NotEnoughMemory(FairmfError, MemoryError):
    """The problem does not fit into the memory of the device."""


class ClusterFailed(FairmfError, RuntimeError):
    """A cluster has too little memory or too few CPUs, or lost workers faster than they could be replaced."""


class MissingHistories(FairmfError, LookupError):
    """The request needs the interactions of training users, and the model was stored without them."""


class BrokenFile(FairmfError, ValueError):
    """A stored model, checkpoint, split or index is damaged, incomplete, or another kind of file."""


class CannotWrite(FairmfError, OSError):
    """A file could not be written; the file that was there before is unchanged."""


class DownloadFailed(FairmfError, OSError):
    """A data set could not be downloaded, or its checksum is not the published one."""


class LicenceNotAccepted(FairmfError, PermissionError):
    """The terms of a data set must be accepted before it is downloaded. `dataset` is its name."""

    def __init__(self, *args: object, dataset: str = "", hint: str | None = None, parameter: str | None = None):
        super().__init__(*args, hint=hint, parameter=parameter)
        self.dataset = dataset
