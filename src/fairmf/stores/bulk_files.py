"""Write vectors as files for the `_bulk` request of OpenSearch and Elasticsearch, and the mapping of their index.

FILE.ndjson has two lines per row, an action and a document; FILE.mapping.json is the body that creates the index.
"""

from __future__ import annotations

import json
from pathlib import Path

from fairmf.io.atomic import replacing
from fairmf.stores.export import bad_target, is_address, is_url
from fairmf.stores.vectors import Vectors
from fairmf.types import Record


def to_opensearch(found: Vectors, target: object, name: str, replace: bool) -> str:  # noqa: ARG001 - files are always replaced
    """Write the files for OpenSearch, whose field of vectors is `knn_vector`."""
    method = {"name": "hnsw", "engine": "faiss", "space_type": "innerproduct"}
    field = {"type": "knn_vector", "dimension": found.width, "method": method}
    return _write("opensearch", found, target, name, {"settings": {"index": {"knn": True}}, **_mapping(found, field)})


def to_elasticsearch(found: Vectors, target: object, name: str, replace: bool) -> str:  # noqa: ARG001 - files are always replaced
    """Write the files for Elasticsearch, whose field of vectors is `dense_vector`."""
    field = {"type": "dense_vector", "dims": found.width, "index": True, "similarity": "max_inner_product"}
    return _write("elasticsearch", found, target, name, _mapping(found, field))


def _mapping(found: Vectors, vector: Record) -> Record:
    ids = {"type": "long" if found.numbered else "keyword"}
    titles = {} if found.titles is None else {"title": {"type": "text"}}
    return {"mappings": {"properties": {"id": ids, **titles, "vector": vector}}}


def _write(to: str, found: Vectors, target: object, name: str, mapping: Record) -> str:
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
            file.write(f"{_line(action)}\n{_line(document)}\n".encode())
    return (
        f"load them: curl -X PUT URL/{name} -H 'Content-Type: application/json' --data-binary @{beside}, then "
        f"curl -X POST URL/_bulk -H 'Content-Type: application/x-ndjson' --data-binary @{path}"
    )


def _line(entry: Record) -> str:
    return json.dumps(entry, ensure_ascii=True, separators=(",", ":"))
