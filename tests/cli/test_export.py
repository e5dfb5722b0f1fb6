"""`export` writes vectors whose inner products are the model's scores, and an index that finds its lists."""

import json

import numpy as np
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from fairmf import load_model
from fairmf.cli import export
from fairmf.stores import STORES, query_vectors


def vectors(path, name):
    read = pq.read_table if path.suffix == ".parquet" else pyarrow.feather.read_table
    table = read(path)
    return table.column(name).to_pylist(), np.array(table.column("vector").to_pylist(), dtype=np.float32)


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("offsets", [False, True])
def test_inner_products_are_the_models_scores(fairmf, made, tmp_path, monkeypatch, ending, offsets):
    monkeypatch.setattr(export, "_ROWS_AT_ONCE", 17)
    source = made / "model.fairmf"
    if offsets:
        how = ("--method", "offsets", "--min-exposure", 0.3, "--iterations", 20, "--save-model", "off.fairmf")
        assert fairmf("rerank", source, *how).code == 0
        source = tmp_path / "off.fairmf"
    assert fairmf("export", source, "-o", f"i.{ending}").code == 0
    done = fairmf("export", source, "-o", f"u.{ending}", "--what", "users", "--fairness", 2, "--json")
    assert done.code == 0, done.err
    model = load_model(source)
    items, V = vectors(tmp_path / f"i.{ending}", "item")
    users, U = vectors(tmp_path / f"u.{ending}", "user")
    assert done.json["rows"] == len(users) == model.n_users
    assert done.json["width"] == U.shape[1] == model.factors + offsets
    assert items == model.fitted.item_ids.values.tolist()
    expected = model.with_fairness(2.0).score(users[5], items)
    np.testing.assert_allclose(V @ U[5], expected, rtol=1e-4, atol=1e-5)
    assert (tmp_path / "i.export.toml").exists()


def test_without_fairness_users_are_as_stored(fairmf, made, tmp_path):
    assert fairmf("export", made / "model.fairmf", "-o", "u.parquet", "--what", "users").code == 0
    _, U = vectors(tmp_path / "u.parquet", "user")
    np.testing.assert_array_equal(U, load_model(made / "model.fairmf").user_factors)


def test_an_index_finds_the_models_lists(fairmf, made, tmp_path):
    pytest.importorskip("faiss", reason='needs the ann extra: pip install "fairmf[ann]"')
    from fairmf.ranking.ann import AnnIndex

    done = fairmf("export", made / "model.fairmf", "-o", "i.ann", "--groups", 4, "--probes", 4, "--json")
    assert done.code == 0, done.err
    assert (done.json["groups"], done.json["probes"]) == (4, 4)
    index, model = AnnIndex.load(tmp_path / "i.ann"), load_model(made / "model.fairmf")
    ids, _ = index.recommend(model.user_factors[:3], N=5)
    users = model.fitted.user_ids.values[:3]
    np.testing.assert_array_equal(ids, model.recommend(users, N=5, filter_already_liked_items=False)[0])


# -- databases, neighbours, popular items -----------------------------------------------------------------------------


def test_a_bulk_file_has_titles_of_the_catalogue(fairmf, made, tmp_path):
    (tmp_path / "films.csv").write_text("item_id,title\n" + "".join(f"{k},Film {k}\n" for k in range(100, 160)))
    done = fairmf(
        "export", made / "model.fairmf", "--to", "opensearch", "-o", "i.ndjson", "--catalogue", "films.csv",
        "--evenness", 0.3, "--name", "films", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert (done.json["to"], done.json["name"], done.json["evenness"]) == ("opensearch", "films", 0.3)
    assert "curl -X POST URL/_bulk" in done.err
    documents = [json.loads(line) for line in (tmp_path / "i.ndjson").read_text().splitlines()[1::2]]
    model = load_model(made / "model.fairmf")
    assert [d["title"] for d in documents] == [f"Film {k}" for k in model.fitted.item_ids.values]
    user = model.fitted.user_ids.values[4]
    scores = np.array([d["vector"] for d in documents]) @ query_vectors(model, [user], evenness=0.3)[0]
    np.testing.assert_allclose(
        scores, model.with_evenness(0.3).score(user, [d["id"] for d in documents]), rtol=1e-4, atol=1e-5
    )
    assert (tmp_path / "i.export.toml").exists()


def test_a_table_has_titles_of_the_catalogue(fairmf, made, tmp_path):
    (tmp_path / "films.csv").write_text("item_id,title\n" + "".join(f"{k},Film {k}\n" for k in range(100, 160)))
    assert fairmf("export", made / "model.fairmf", "-o", "i.parquet", "--catalogue", "films.csv").code == 0
    table = pq.read_table(tmp_path / "i.parquet")
    assert table["title"].to_pylist() == [f"Film {k}" for k in table["item"].to_pylist()]


@pytest.mark.parametrize("kind", ["item", "user"])
def test_neighbours_are_those_of_a_double_loop(fairmf, made, tmp_path, monkeypatch, kind):
    monkeypatch.setattr("fairmf.models.neighbour_tables.ROWS_AT_ONCE", 17)
    done = fairmf(
        "export", made / "model.fairmf", "--what", f"similar-{kind}s", "-o", "n.parquet", "--top", 4, "--json"
    )
    assert done.code == 0, done.err
    model = load_model(made / "model.fairmf")
    factors, ids = (
        (model.item_factors, model.fitted.item_ids) if kind == "item" else (model.user_factors, model.fitted.user_ids)
    )
    found = pq.read_table(tmp_path / "n.parquet").to_pylist()
    assert done.json["rows"] == len(found) == 4 * len(factors)
    units = factors.astype(float) / np.linalg.norm(factors.astype(float), axis=1, keepdims=True)
    at = 0
    for row, name in enumerate(ids.values.tolist()):
        cosines = sorted(-float(units[row] @ units[k]) for k in range(len(factors)) if k != row)
        for rank in range(1, 5):
            assert (found[at][kind], found[at]["rank"]) == (name, rank)
            assert found[at]["neighbour"] != name
            assert found[at]["similarity"] == pytest.approx(-cosines[rank - 1], abs=1e-5)
            at += 1


def test_popular_items_are_those_with_most_interactions(fairmf, made, tmp_path):
    assert fairmf("export", made / "model.fairmf", "--what", "popular", "-o", "p.csv", "-n", 7).code == 0
    model = load_model(made / "model.fairmf")
    rows = [line.split(",") for line in (tmp_path / "p.csv").read_text().split()[1:]]
    amounts = dict(zip(model.fitted.item_ids.values.tolist(), model.fitted.popularity.tolist(), strict=True))
    best = sorted(amounts.values(), reverse=True)[:7]
    assert [amounts[int(item)] for item, _, _ in rows] == best
    assert [rank for _, _, rank in rows] == [str(k) for k in range(1, 8)]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("-o", "postgresql://me:secret@127.0.0.1:1/x"), "--to pgvector"),
        (("-o", "i.parquet", "--replace"), "for a database"),
        (("-o", "i.parquet", "--top", 3), "number of neighbours"),
        (("-o", "i.json", "--what", "popular", "--evenness", 0.3), "does not change popular"),
        (("-o", "i.ndjson", "--to", "opensearch", "--what", "popular"), "takes vectors"),
        (("-o", "i.ndjson", "--to", "opensearch", "--name", "A B"), "small letters"),
        (("-o", "i.txt", "--to", "milvus"), "items.db"),
        (("-o", "redis://me:secret@127.0.0.1:1/0", "--to", "redis"), "127.0.0.1:1"),
    ],
)
def test_mistakes_say_what_to_do_and_no_password(fairmf, made, flags, said):
    if "redis" in flags:
        pytest.importorskip("redis", reason="needs the redis extra: pip install redis")
    done = fairmf("export", made / "model.fairmf", *flags)
    assert done.code not in (0, 70), done.err
    assert said in " ".join(done.err.split())
    assert "secret" not in done.err


def test_the_flag_names_every_store():
    assert [to.value for to in export.To] == ["file", *STORES]


@pytest.mark.parametrize("early", [False, True], ids=["late in the file", "in its first rows"])
def test_a_catalogue_may_write_quotes_with_a_backslash(fairmf, made, tmp_path, early):
    """As the files of Book-Crossing do, which are in Latin-1 and have rows that lack a column."""
    plain = "".join(f'"{k}";"Another book {k}\x85"\r\n' for k in range(1000, 30_000))
    quoted = "".join(f'"{k}";"The \\"Caf\xe9\\" {k}; part 1"\r\n' for k in range(100, 160))
    broken = '"999";"Level 4\\";Somebody"";"2000"\r\n'
    rows = quoted + plain + broken if early else plain + quoted
    (tmp_path / "books.csv").write_bytes(('"ISBN";"Book-Title"\r\n' + rows).encode("latin-1"))
    done = fairmf("export", made / "model.fairmf", "--what", "popular", "-o", "p.json", "--catalogue", "books.csv")
    assert done.code == 0, done.err
    assert ("Left out: 1 of 29,062 rows" in " ".join(done.err.split())) == early
    first = json.loads((tmp_path / "p.json").read_text())[0]
    assert first["title"] == f'The "Caf\xe9" {first["item"]}; part 1'
