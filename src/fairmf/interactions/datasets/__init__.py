"""Benchmark data sets: where from, under which terms, checked, cached, read as events."""

from fairmf.interactions.datasets.cache import cache_folder, licence_accepted, registered_copy, use_copy
from fairmf.interactions.datasets.loading import fetch_dataset, load_dataset
from fairmf.interactions.datasets.registry import DataSet, dataset, datasets

__all__ = [
    "load_dataset",
    "fetch_dataset",
    "datasets",
    "dataset",
    "DataSet",
    "cache_folder",
    "licence_accepted",
    "registered_copy",
    "use_copy",
]
