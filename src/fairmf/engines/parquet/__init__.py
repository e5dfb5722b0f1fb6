"""A Parquet data set, read and cut by users by the processes of a cluster."""

from fairmf.engines.parquet.shards import ParquetShards

__all__ = ["ParquetShards"]
