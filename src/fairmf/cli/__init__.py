"""The command line: one file per verb."""

from fairmf.cli.app import main

__all__ = ["main"]
