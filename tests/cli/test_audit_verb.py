"""`audit` compares what it says it compares, with groups and names from files."""

import json

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fairmf import audit, load_model
from fairmf.data.split import Split


@pytest.fixture
def model(made):
    return load_model(made / "model.fairmf")


@pytest.fixture
def split(made):
    return Split.load(made / "split")


def facts(split):
    items = split.train.item_ids.values.tolist()
    return {item: (f"Thing [bold], {item}", f"seller {item % 3}") for item in items}


def write_facts(path, found):
    items, pairs = list(found), list(found.values())
    table = pa.table({"title": [a for a, _ in pairs], "item_id": items, "seller": [b for _, b in pairs]})
    (pq.write_table if path.suffix == ".parquet" else pyarrow.csv.write_csv)(table, path)


def test_one_model_dialled_is_the_librarys_audit(fairmf, made, model, split, tmp_path):
    done = fairmf("audit", made / "model.fairmf", made / "split", "--after-fairness", 3, "--json", "-o", "audit.json")
    assert done.code == 0, done.err
    names = {"before_name": "model.fairmf without evenness", "after_name": "model.fairmf at fairness 3"}
    options = {"before_options": {"fairness": 0.0}, "after_options": {"fairness": 3.0}}
    expected = audit(model, model, split, **options, **names).to_dict(top=10)
    assert done.json["metrics"] == json.loads(json.dumps(expected["metrics"]))
    assert done.json["statements"] == expected["statements"]
    assert json.loads((tmp_path / "audit.json").read_text())["metrics"] == done.json["metrics"]
    assert (tmp_path / "audit.audit.toml").exists()


def test_two_models(fairmf, made, model, split):
    fairmf("fit", made / "split", "-o", "other.fairmf", "--model", "ials", "--factors", 4, "--epochs", 3)
    how = ("audit", made / "model.fairmf", made / "split", "--after", "other.fairmf", "--part", "validation", "--at", 5)
    done = fairmf(*how, "--bootstrap", 0, "--json", "--no-record")
    assert done.code == 0, done.err
    expected = audit(model, load_model("other.fairmf"), split, at=5, part="validation", bootstrap=0)
    assert done.json["metrics"]["gini@5"]["before"] == expected["gini@5"].before
    assert done.json["metrics"]["gini@5"]["after"] == expected["gini@5"].after
    assert done.json["after_name"] == "other.fairmf without evenness"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_groups_and_names_from_a_file(fairmf, made, model, split, tmp_path, ending):
    found = facts(split)
    write_facts(tmp_path / f"items.{ending}", found)
    where = ("--catalogue", f"items.{ending}", "--group-column", "seller")
    how = ("audit", made / "model.fairmf", made / "split", *where, "--items", "every.csv")
    done = fairmf(*how, "--json", "--no-record")
    assert done.code == 0, done.err
    sellers = {item: seller for item, (_, seller) in found.items()}
    options = {"before_options": {"fairness": 0}, "after_options": {"evenness": 0.3}}
    expected = audit(model, model, split, groups=sellers, **options)
    shares = {group["group"]: group["share"]["after"] for group in done.json["groups"]}
    assert shares == {change.group: change.share.after for change in expected.groups}
    assert done.json["gainers"][0]["name"].startswith("Thing [bold], ")
    every = pyarrow.csv.read_csv(tmp_path / "every.csv")
    assert every.num_rows == split.train.n_items
    assert sum(every.column("after").to_pylist()) == split.test.n_users * 20
    shown = fairmf(*how, "--no-record")
    assert "Thing [bold]" in shown.out
    assert "seller 2" in shown.out


def test_items_the_file_does_not_have_are_said_and_get_no_group(fairmf, made, split, tmp_path):
    found = facts(split)
    left_out = [found.pop(item) for item in list(found)[:4]]
    write_facts(tmp_path / "items.csv", found)
    where = ("--catalogue", "items.csv")
    done = fairmf("audit", made / "model.fairmf", made / "split", *where, "--json", "--no-record", "--bootstrap", 0)
    assert f"{len(left_out)} of {split.train.n_items} items have no group in items.csv" in done.err
    assert {g["group"]: g["n_items"] for g in done.json["groups"]}["no group"] == 4


def test_a_catalogue_as_movielens_has_it(fairmf, made, split, tmp_path):
    genres = {item: f"genre {k % 3}" for k, item in enumerate(split.train.item_ids.values.tolist())}
    titles = {item: f'"Star" Wars: Episode {item}, Thé (1977)' for item in genres}
    text = "".join(f"{item}::{titles[item]}::{genre}\n" for item, genre in genres.items())
    (tmp_path / "movies.dat").write_text(text, encoding="latin-1")
    where = ("--catalogue", "movies.dat", "--name-column", "1", "--group-column", "2")
    done = fairmf("audit", made / "model.fairmf", made / "split", *where, "--json", "--no-record", "--bootstrap", 0)
    assert done.code == 0, done.err
    sizes = {group: list(genres.values()).count(group) for group in genres.values()}
    assert {group["group"]: group["n_items"] for group in done.json["groups"]} == sizes
    assert {gainer["name"] for gainer in done.json["gainers"]} <= set(titles.values())


def test_genres_with_bars_are_several_groups(fairmf, made, split, tmp_path):
    kinds = ("Comedy", "Drama", "War|Drama", "Comedy|War|Drama")
    genres = {item: kinds[k % 4] for k, item in enumerate(split.train.item_ids.values.tolist())}
    (tmp_path / "items.csv").write_text("movieId,genres\n" + "".join(f"{i},{g}\n" for i, g in genres.items()))
    how = ("audit", made / "model.fairmf", made / "split", "--catalogue", "items.csv", "--items", "every.csv")
    done = fairmf(*how, "--json", "--no-record", "--bootstrap", 20)
    assert done.code == 0, done.err
    groups = {group["group"]: group for group in done.json["groups"]}
    sizes = {name: sum(name in g.split("|") for g in genres.values()) for name in ("Comedy", "Drama", "War")}
    assert {name: group["n_items"] for name, group in groups.items()} == sizes
    assert sum(group["share"]["after"] for group in groups.values()) == pytest.approx(1)
    # The same from the exposure of every item.
    items = pyarrow.csv.read_csv(tmp_path / "every.csv")
    exposure = dict.fromkeys(sizes, 0.0)
    for item, after in zip(items["item"].to_pylist(), items["after"].to_pylist(), strict=True):
        for genre in genres[item].split("|"):
            exposure[genre] += after / len(genres[item].split("|"))
    assert {name: group["after"] for name, group in groups.items()} == pytest.approx(exposure)
    for group in groups.values():
        assert group["share"]["low"] <= group["share"]["difference"] <= group["share"]["high"]


def test_top_cuts_the_table_of_groups_too(fairmf, made, split, tmp_path):
    items = split.train.item_ids.values.tolist()
    (tmp_path / "items.csv").write_text("item,seller\n" + "".join(f"{i},shop{k % 12}\n" for k, i in enumerate(items)))
    how = ("audit", made / "model.fairmf", made / "split", "--catalogue", "items.csv", "--no-record", "--bootstrap", 0)

    def rows(*flags):
        table = fairmf(*how, *flags).out.partition("exposure of groups")[2].partition("items that")[0]
        return [line.split("│")[3:6] for line in table.splitlines() if line.startswith("│ shop")]

    assert len(rows("--top", 3)) == 3
    assert len(rows("--top", 0)) == 0
    shown = rows("--top", 20, "--after-flatten", 1)
    assert len(shown) == 12
    for before, after, change in shown:  # as they are written, they add up
        number = float(change.replace("−", "-").removesuffix("points ").strip())
        assert round(float(after.strip(" %")) - float(before.strip(" %")), 1) == number


def test_text_ids_stay_text(fairmf, tmp_path):
    rows = [(u, f"{i:03}") for u in range(60) for i in range(30) if (u * 7 + i * 3) % 5 < 2]
    (tmp_path / "e.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in rows))
    (tmp_path / "g.tsv").write_text(
        "code\tkind\n" + "".join(f"{i:03}\t{'odd' if i % 2 else 'even'}\n" for i in range(30))
    )
    assert fairmf("split", "e.csv", "-o", "s", "--text-ids").code == 0
    assert fairmf("fit", "s", "-o", "m.fairmf", "--factors", 3, "--epochs", 2).code == 0
    done = fairmf(
        "audit",
        "m.fairmf",
        "s",
        "--catalogue",
        "g.tsv",
        "--group-column",
        "kind",
        "--at",
        3,
        "--bootstrap",
        0,
        "--json",
    )
    assert done.code == 0, done.err
    assert {g["group"]: g["n_items"] for g in done.json["groups"]} == {"even": 15, "odd": 15}
