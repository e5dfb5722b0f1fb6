"""Test features, dislikes, half-lives and recency on the command line."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from running import write_events

from fairmf import Split, load_model

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
    left_out = int((~model.fitted.item_features.counted).sum())
    done = fairmf("inspect", "model.fairmf", "--json", "-q")
    expected = {"features": 4, "columns": ["genre", "year"], "without_interactions": left_out}
    assert done.json["item_features"] == expected
    assert done.json["user_features"] is None
    assert f"4 (genre, year); {left_out} items" in " ".join(fairmf("inspect", "model.fairmf", "-q").out.split())
    found = {}
    for name in ("plain", "model"):
        done = fairmf("evaluate", f"{name}.fairmf", "split", "--metrics", "cold_share@20", "--json", "-q")
        assert done.code == 0, done.err
        found[name] = done.out
    assert found["plain"] != found["model"]
    done = fairmf("evaluate", "model.fairmf", "split", "--at", "5", "--bootstrap", "0")
    assert done.code == 0, done.err
    n_cold = int((Split.load("split").train.by_item.sums() == 0).sum())
    assert "recall_among_cold" in done.out
    assert f"{n_cold} of 60 items" in " ".join(done.out.split())
    done = fairmf("audit", "model.fairmf", "split", "--at", "5", "--bootstrap", "0", "-o", "audit.json")
    assert done.code == 0, done.err
    text = " ".join(done.out.split())
    assert f"The {n_cold} items without interactions in training are {n_cold / 60:.1%} of the catalogue" in text
    assert f"items without interactions in training: {n_cold}" in text
    assert "held-out ones found" in text
    assert json.loads(Path("audit.json").read_text())["cold"]["n_items"] == n_cold


def test_a_table_that_is_not_there(fairmf):
    write_events("events.csv")
    done = fairmf("fit", "events.csv", "-o", "model.fairmf", "--item-features", "none.csv", *SMALL)
    assert done.code != 0
    assert "There is no table of features none.csv" in done.err


def write_dated(path):
    """60 users with 8 items each, one a day from 2024-01-01 on, every fifth a dislike."""
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["user", "item", "weight", "date"])
        for user in range(60):
            for k in range(8):
                item = (user * 3 + k * (1 + user % 4)) % 40
                writer.writerow([user, item, -1 if (user + k) % 5 == 0 else 2, f"2024-01-{1 + k:02}"])


def test_dislikes_and_a_half_life(fairmf):
    write_dated("dated.csv")
    done = fairmf("inspect", "dated.csv", "--weight", "weight", "--json", "-q")
    assert done.json["dislikes"] == 96
    half_life = ("--weight", "weight", "--time", "date", "--half-life", "3.5")
    done = fairmf("fit", "dated.csv", "-o", "model.fairmf", *half_life, "--as-of", "2024-01-08", *SMALL[:-1])
    assert done.code == 0, done.err
    assert "of them dislikes" in done.err
    model = load_model("model.fairmf")
    own = model.fitted.weighting.inner
    assert (own.days, own.as_of) == (3.5, "2024-01-08")
    new = ("recommend", "model.fairmf", "--new-users", "dated.csv", "--weight", "weight", "--json", "-q")
    done = fairmf(*new, "--time", "date")
    assert done.code == 0, done.err
    lists, (_, expected) = done.json["lists"], model.recommend(range(60), N=10)
    for user, one in enumerate(lists[:50]):  # stored and new users may order items of nearly equal scores otherwise
        own = expected[user][: len(one["items"])]
        np.testing.assert_allclose(one["scores"], own, atol=1e-4)
        np.testing.assert_allclose(model.score([user] * len(one["items"]), one["items"]), own, atol=1e-4)
        assert np.isnan(expected[user][len(own) :]).all()
    done = fairmf(*new, "--time", "date", "--half-life", "9")
    assert done.code != 0
    assert "half-life of 3.5 days" in done.err


def test_splits_by_recency_and_with_a_half_life(fairmf):
    write_dated("dated.csv")
    read = ("dated.csv", "-o", "split", "--by", "interaction", "--weight", "weight", "--half-life", "7", "-q")
    done = fairmf("split", *read, "--recency", "--share", ".2")
    assert done.code == 0, done.err
    split = Split.load("split")
    assert split.train.weighting.days == 7
    assert split.train.n_dislikes > 0
    assert 0 < split.test.targets.nnz < 60  # one each, less the dislikes
    assert fairmf("split", "dated.csv", "-o", "other", "--half-life", "7", "-q").code != 0  # the public protocol
    assert fairmf("split", "dated.csv", "-o", "other", "--recency", "-q").code != 0


@pytest.mark.slow
@pytest.mark.usefixtures("ray_cluster")
def test_features_and_dislikes_on_a_cluster(fairmf):
    write_dated("dated.csv")
    items = [[j, ["Drama", "War|Drama", "Comedy"][j % 3]] for j in range(45)]
    Path("items.csv").write_text("item,genre\n" + "".join(f"{j},{genre}\n" for j, genre in items))
    flags = ("--weight", "weight", "--item-features", "items.csv", *SMALL[:-1])
    for name, engine in (("local", "local"), ("cluster", "ray")):
        done = fairmf("fit", "dated.csv", "-o", f"{name}.fairmf", "--engine", engine, *flags)
        assert done.code == 0, done.err
        assert "of them dislikes" in done.err
    local, cluster = load_model("local.fairmf"), load_model("cluster.fairmf")
    assert cluster.fitted.item_features.names == local.fitted.item_features.names
    scores, expected = (model.user_factors @ model.item_factors.T for model in (cluster, local))
    np.testing.assert_allclose(scores, expected, atol=5e-3)
