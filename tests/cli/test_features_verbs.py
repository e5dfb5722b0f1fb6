"""Test features on the command line: a split by item, a fit with a table, an evaluation of cold items."""

import csv
from pathlib import Path

from running import write_events

from fairmf import load_model

SMALL = ("--factors", "8", "--epochs", "4", "--settings", "given", "-q")


def write_items(path):
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item_id", "genre", "year"])
        writer.writerows([100 + j, ["Drama", "War|Drama", "Comedy"][j % 3], 1950 + j] for j in range(60))


def test_new_items_from_a_table(fairmf):
    write_events("events.csv")
    write_items("items.csv")
    done = fairmf("split", "events.csv", "-o", "split", "--by", "item", "--cold-share", ".2", "--json", "-q")
    assert done.code == 0, done.err
    assert done.json["method"] == "by_item"
    assert fairmf("fit", "split", "-o", "plain.fairmf", *SMALL).code == 0
    done = fairmf("fit", "split", "-o", "model.fairmf", "--item-features", "items.csv", *SMALL)
    assert done.code == 0, done.err
    model = load_model("model.fairmf")
    assert set(model.fitted.item_features.names) == {"genre=Drama", "genre=War", "genre=Comedy", "year"}
    assert not model.fitted.item_features.counted.all()
    found = {}
    for name in ("plain", "model"):
        done = fairmf("evaluate", f"{name}.fairmf", "split", "--metrics", "cold_share@20", "--json", "-q")
        assert done.code == 0, done.err
        found[name] = done.out
    assert found["plain"] != found["model"]


def test_a_table_that_is_not_there(fairmf):
    write_events("events.csv")
    done = fairmf("fit", "events.csv", "-o", "model.fairmf", "--item-features", "none.csv", *SMALL)
    assert done.code != 0
    assert "There is no table of features none.csv" in done.err
