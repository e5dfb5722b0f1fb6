"""Every error fairmf raises on purpose; each is also the built-in kind a caller would expect."""


class FairmfError(Exception):
    """Base of all errors raised by fairmf."""


class InvalidData(FairmfError, ValueError):
    """The interactions, or what they were read from, cannot be used as they are."""


class InvalidParameter(FairmfError, ValueError):
    """A setting or argument is outside its range."""


class NotFitted(FairmfError, RuntimeError):
    """The model has not been fitted yet."""


class NotFinite(FairmfError, ArithmeticError):
    """Training produced a number that is not finite; the last good epoch is kept in the model."""


class MissingDependency(FairmfError, ImportError):
    """An optional part needs a package that is not installed."""


class NotEnoughMemory(FairmfError, MemoryError):
    """The problem does not fit into the memory of the device."""


class ClusterFailed(FairmfError, RuntimeError):
    """A cluster has too little room, or its members were lost faster than they could be replaced."""


class MissingHistories(FairmfError, LookupError):
    """The question needs the interactions of training users, and the model was stored without them."""


class BrokenFile(FairmfError, ValueError):
    """A stored model, checkpoint or index is damaged, incomplete, or not one at all."""


class CannotWrite(FairmfError, OSError):
    """A file could not be written; the file that was there before is unchanged."""


class DownloadFailed(FairmfError, OSError):
    """A data set could not be fetched, or what arrived is not what was published."""


class LicenceNotAccepted(FairmfError, PermissionError):
    """A data set's terms have to be accepted before it is fetched."""
