"""The version of this library, also for those parts of it that may not import the front door."""

__version__ = "0.1.0"
