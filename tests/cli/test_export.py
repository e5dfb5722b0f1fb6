"""`export` writes vectors whose inner products are the model's scores, and an index that finds its lists."""

import numpy as np
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from fairmf import load_model
from fairmf.cli import export


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
