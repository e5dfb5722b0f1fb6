"""Write vectors to Qdrant, Milvus and Redis with their clients, and bulk files for OpenSearch and Elasticsearch.

Every row has an id, a vector and perhaps a title. A client that the caller opened stays open; one that is opened here
is closed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairmf.io.atomic import replacing
from fairmf.stores.export import bad_target, client_of, is_address, is_url, taken
from fairmf.stores.vectors import Vectors
from fairmf.types import Record

ROWS_AT_ONCE = 1000
_LONGEST = 65_535  # bytes of a text in Milvus


def to_qdrant(found: Vectors, target: object, name: str, replace: bool) -> str:
    """Write to a collection of Qdrant. Its points are numbered by row, as it takes no ids of other kinds."""
    if is_url(target) and not str(target).startswith(("http://", "https://")):
        raise bad_target("qdrant", target)
    with client_of("qdrant", target):
        from qdrant_client import QdrantClient, models

        with _opened(target, lambda: _qdrant(QdrantClient, target)) as client:
            if client.collection_exists(name):
                if not replace:
                    raise taken("qdrant", name)
                client.delete_collection(name)
            distance = models.VectorParams(size=found.width, distance=models.Distance.DOT)
            client.create_collection(name, vectors_config=distance)
            start = 0
            for part in found.parts(ROWS_AT_ONCE):
                points = models.Batch(
                    ids=list(range(start, start + len(part))),
                    vectors=part.vectors.tolist(),
                    payloads=[_fields(id_, title) for id_, title, _ in part.rows()],
                )
                client.upsert(name, points, wait=True)
                start += len(part)
    return "search by inner product (Dot); SearchParams(exact=True) looks at all items"


def _qdrant(kind: Any, target: object) -> Any:
    if is_url(target):
        return kind(url=target, api_key=os.environ.get("QDRANT_API_KEY"))
    return kind(location=":memory:") if target == ":memory:" else kind(path=str(target))


def to_milvus(found: Vectors, target: object, name: str, replace: bool) -> str:
    """Write to a collection of Milvus, with an index that looks at all rows (FLAT)."""
    local = not is_url(target) and Path(str(target)).suffix == ".db"
    if is_address(target) and not local and not str(target).startswith(("http://", "https://", "tcp://", "unix:")):
        raise bad_target("milvus", target)
    with client_of("milvus", target):
        from pymilvus import DataType, MilvusClient

        token = os.environ.get("MILVUS_TOKEN", "")
        with _opened(target, lambda: MilvusClient(str(target), token=token)) as client:
            if client.has_collection(name):
                if not replace:
                    raise taken("milvus", name)
                client.drop_collection(name)
            schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
            if found.numbered:
                schema.add_field("id", DataType.INT64, is_primary=True)
            else:
                schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=_LONGEST)
            if found.titles is not None:
                schema.add_field("title", DataType.VARCHAR, max_length=_LONGEST)
            schema.add_field("vector", DataType.FLOAT_VECTOR, dim=found.width)
            index = client.prepare_index_params()
            index.add_index("vector", index_type="FLAT", metric_type="IP")
            client.create_collection(name, schema=schema, index_params=index)
            for part in found.parts(ROWS_AT_ONCE):
                client.insert(name, [{**_fields(id_, t), "vector": v.tolist()} for id_, t, v in part.rows()])
            client.flush(name)
    return "search with metric IP; the index FLAT looks at all items"


def to_redis(found: Vectors, target: object, name: str, replace: bool) -> str:
    """Write hashes NAME:ID with the fields id, title and vector (float32, little-endian), and index them if possible.

    Redis searches vectors only with its query engine (Redis Stack, or the full build of Redis 8). Any other server
    stores and returns them.
    """
    if is_address(target) and not str(target).startswith(("redis://", "rediss://", "unix://")):
        raise bad_target("redis", target)
    with client_of("redis", target):
        import redis

        with _opened(target, lambda: redis.Redis.from_url(str(target), socket_connect_timeout=10)) as client:
            old = set(map(_text, client.scan_iter(match=f"{name}:*", count=10_000)))
            if old and not replace:
                raise taken("redis", name)
            for part in found.parts(ROWS_AT_ONCE):
                pipe = client.pipeline(transaction=False)
                for id_, title, vector in part.rows():
                    key = f"{name}:{id_}"
                    pipe.hset(key, mapping={**_fields(id_, title), "vector": vector.astype("<f4").tobytes()})
                    old.discard(key)
                pipe.execute()
            gone = sorted(old)  # items that the new model does not have
            for start in range(0, len(gone), ROWS_AT_ONCE):
                client.unlink(*gone[start : start + ROWS_AT_ONCE])
            return _index_of_redis(client, found, name)


def search_schema(found: Vectors, name: str) -> list[str | int]:
    """Return the FT.CREATE command that indexes the hashes; FLAT looks at all of them."""
    vector: list[str | int] = ["VECTOR", "FLAT", 6, "TYPE", "FLOAT32", "DIM", found.width, "DISTANCE_METRIC", "IP"]
    titles = [] if found.titles is None else ["title", "TEXT"]
    return ["FT.CREATE", name, "ON", "HASH", "PREFIX", 1, f"{name}:", "SCHEMA", "id", "TAG", *titles, "vector", *vector]


def _index_of_redis(client: Any, found: Vectors, name: str) -> str:
    command = search_schema(found, name)
    modules = [_text(word) for entry in client.module_list() for word in entry.values()]
    if "search" not in modules:
        return "this Redis has no vector search, so only hashes were written; with its query engine, run " + " ".join(
            map(str, command)
        )
    if name in map(_text, client.execute_command("FT._LIST")):
        client.execute_command("FT.DROPINDEX", name)
    client.execute_command(*command)
    return f"search: FT.SEARCH {name} '*=>[KNN 10 @vector $q]' PARAMS 2 q BLOB DIALECT 2"


def _text(word: object) -> str:
    """Return a word of an answer: bytes, or a text where the client was told to decode."""
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)


def _fields(id_: int | str, title: str | None) -> dict[str, int | str]:
    return {"id": id_} if title is None else {"id": id_, "title": title}


@contextlib.contextmanager
def _opened(target: object, connect: Any) -> Iterator[Any]:
    """Give the client that was passed, or open one and close it afterwards."""
    if not is_address(target):
        yield target
        return
    client = connect()
    try:
        yield client
    finally:
        client.close()


# -- files for the _bulk request of OpenSearch and Elasticsearch -------------------------------------------------------
#
# FILE.ndjson has two lines per row, an action and a document; FILE.mapping.json is the body that creates the index.


def to_opensearch(found: Vectors, target: object, name: str, replace: bool) -> str:  # noqa: ARG001 - files are always replaced
    """Write the files for OpenSearch, whose field of vectors is `knn_vector`."""
    method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
    field = {"type": "knn_vector", "dimension": found.width, "method": method}
    return _write_bulk(
        "opensearch", found, target, name, {"settings": {"index": {"knn": True}}, **_mapping(found, field)}
    )


def to_elasticsearch(found: Vectors, target: object, name: str, replace: bool) -> str:  # noqa: ARG001 - files are always replaced
    """Write the files for Elasticsearch, whose field of vectors is `dense_vector`."""
    field = {"type": "dense_vector", "dims": found.width, "index": True, "similarity": "max_inner_product"}
    return _write_bulk("elasticsearch", found, target, name, _mapping(found, field))


def _mapping(found: Vectors, vector: Record) -> Record:
    ids = {"type": "long" if found.numbered else "keyword"}
    titles = {} if found.titles is None else {"title": {"type": "text"}}
    return {"mappings": {"properties": {"id": ids, **titles, "vector": vector}}}


def _write_bulk(to: str, found: Vectors, target: object, name: str, mapping: Record) -> str:
    if not is_address(target) or is_url(target) or Path(str(target)).suffix.lower() != ".ndjson":
        raise bad_target(to, target)
    path = Path(str(target))
    beside = path.with_suffix(".mapping.json")
    with replacing(beside) as file:
        file.write((json.dumps(mapping, indent=2) + "\n").encode())
    with replacing(path) as file:
        for id_, title, vector in found.rows():
            action = {"index": {"_index": name, "_id": str(id_)}}
            document = {"id": id_, **({} if title is None else {"title": title}), "vector": vector.tolist()}
            file.write(f"{_bulk_line(action)}\n{_bulk_line(document)}\n".encode())
    return (
        f"load them: curl -X PUT URL/{name} -H 'Content-Type: application/json' --data-binary @{beside}, then "
        f"curl -X POST URL/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @{path}"
    )


def _bulk_line(entry: Record) -> str:
    return json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
