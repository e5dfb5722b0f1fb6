"""Run the command line: one file per verb, and what the verbs share."""

from fairmf.cli.app import main

__all__ = ["main"]
