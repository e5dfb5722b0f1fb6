"""1. Interactions: read from anywhere, held once, in both orientations."""

from fairmf.interactions.arrow_reader import read_arrow
from fairmf.interactions.csv_reader import read_csv
from fairmf.interactions.events import Events
from fairmf.interactions.ids import Ids
from fairmf.interactions.interactions import Interactions
from fairmf.interactions.readers import read_frame, read_parquet
from fairmf.interactions.rows import Rows
from fairmf.interactions.sql_reader import read_sql
from fairmf.interactions.synthetic import synthetic, synthetic_events

__all__ = [
    "Interactions",
    "Events",
    "Ids",
    "Rows",
    "read_frame",
    "read_arrow",
    "read_csv",
    "read_parquet",
    "read_sql",
    "synthetic",
    "synthetic_events",
]
