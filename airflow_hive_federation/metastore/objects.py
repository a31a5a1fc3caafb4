"""Names what tables and partitions of a metastore have in common, for functions that take either."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from airflow_hive_federation.metastore.idl import types

#: A table, or a partition: each has a storage descriptor, parameters, column statistics and a write id.
TableOrPartition: TypeAlias = types.Table | types.Partition

#: One of the two; a function with such an argument and result returns the type that it was given.
Described = TypeVar("Described", types.Table, types.Partition)
