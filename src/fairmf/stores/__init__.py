"""Write vectors to vector databases and search engines: Qdrant, pgvector, Redis, Milvus, OpenSearch, Elasticsearch."""

from __future__ import annotations

from fairmf.stores.export import STORES, Exported, export_vectors, without_secrets
from fairmf.stores.vectors import Vectors, query_vectors, vectors_of

__all__ = ["STORES", "Exported", "Vectors", "export_vectors", "query_vectors", "vectors_of", "without_secrets"]
