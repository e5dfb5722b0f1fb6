"""`fairmf report` writes what the library's `report` writes, with names and groups from a table."""

import csv
import gzip

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reports.small_report import data_of

from fairmf import Split, load_model, report
from fairmf.reports.run_record import parse_toml

FLAGS = ("--fairness", "0,1,3", "--bootstrap", "20")


def written(fairmf, made, *flags):
    done = fairmf("report", made / "model.fairmf", made / "split", "-o", "r.html", *FLAGS, *flags)
    assert done.code == 0, done.err
    return done


def catalogue(path, made, kind="csv"):
    items = Split.load(made / "split").train.item_ids.values.tolist()
    rows = [(item, f"Title {item}", f"genre {item % 3}") for item in items[5:]]  # five are missing
    if kind == "parquet":
        pq.write_table(pa.table(dict(zip(("item_id", "title", "genre"), zip(*rows, strict=True), strict=True))), path)
        return items
    with (gzip.open if kind == "gz" else open)(path, "wt", newline="") as file:
        writer = csv.writer(file, delimiter=";" if kind == "gz" else ",")
        writer.writerows([("item_id", "title", "genre"), *rows])
    return items


def test_it_is_the_librarys_report(fairmf, made, tmp_path):
    done = written(fairmf, made, "--title", "From the command line")
    assert done.out.strip() == f"Report  {(tmp_path / 'r.html').resolve()}"
    found = data_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    model, split = load_model(made / "model.fairmf"), Split.load(made / "split")
    again = report(model, split, tmp_path / "b.html", fairness=[0, 1, 3], bootstrap=20)
    assert found == data_of(again.read_text(encoding="utf-8"))
    assert "From the command line" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_levels_of_evenness(fairmf, made, tmp_path):
    flags = ("--evenness", "0,0.5,1", "--bootstrap", "0", "--examples", "0")
    assert fairmf("report", made / "model.fairmf", made / "split", "-o", "e.html", *flags).code == 0
    page = (tmp_path / "e.html").read_text(encoding="utf-8")
    model, split = load_model(made / "model.fairmf"), Split.load(made / "split")
    again = report(model, split, tmp_path / "f.html", evenness=[0, 0.5, 1], bootstrap=0, examples=0)
    assert data_of(page) == data_of(again.read_text(encoding="utf-8"))
    assert [p["evenness"] for p in data_of(page)["positions"]] == [0, 0.5, 1]
    both = fairmf("report", made / "model.fairmf", made / "split", "--evenness", "0,1", "--fairness", "0,1")
    assert both.code != 0
    assert "not both" in both.err


def test_its_record_repeats_it(fairmf, made, tmp_path):
    written(fairmf, made)
    record = parse_toml((tmp_path / "r.report.toml").read_text())
    assert record["settings"]["fairness"] == "0,1,3"
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert record["data"]["test"]["fingerprint"] in page
    (tmp_path / "r.html").unlink()
    assert fairmf("report", "--config", "r.report.toml", made / "model.fairmf", made / "split").code == 0
    assert data_of((tmp_path / "r.html").read_text(encoding="utf-8")) == data_of(page)


@pytest.mark.parametrize("kind", ["csv", "parquet", "gz"])
def test_names_and_groups_from_a_table(fairmf, made, tmp_path, kind):
    name = {"csv": "items.csv", "parquet": "items.parquet", "gz": "items.csv.gz"}[kind]
    items = catalogue(tmp_path / name, made, kind)
    written(fairmf, made, "--catalogue", name)
    data = data_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    expected = {str(item) for item in items[:5]} | {f"Title {item}" for item in items[5:]}
    assert set(data["items"]["names"]) == expected
    group = dict(zip(data["items"]["names"], data["items"]["groups"], strict=True))
    assert all(group[f"Title {item}"] == f"genre {item % 3}" for item in items[5:])
    assert group[str(items[0])] == "no group"
    assert set(data["groups"]["names"]) == {"genre 0", "genre 1", "genre 2", "no group"}


def test_a_movielens_catalogue_without_a_header(fairmf, made, tmp_path):
    items = Split.load(made / "split").train.item_ids.values.tolist()
    lines = [f"{item}::Café {item}::Drama|War" for item in items]
    (tmp_path / "movies.dat").write_bytes("\n".join(lines).encode("latin-1"))
    written(fairmf, made, "--catalogue", "movies.dat", "--name-column", "1")
    data = data_of((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert set(data["items"]["names"]) == {f"Café {item}" for item in items}
    assert set(data["items"]["groups"]) == {"Drama, War"}
    assert data["groups"]["names"] == ["Drama", "War"]


def test_json(fairmf, made, tmp_path):
    done = written(fairmf, made, "--json", "--part", "validation", "--examples", "0")
    assert done.json["report"] == str((tmp_path / "r.html").resolve())
    assert done.json["part"] == "validation"
    assert "validation users" in (tmp_path / "r.html").read_text(encoding="utf-8")
