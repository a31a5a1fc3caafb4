"""Defines types for functions that take a table or a partition of a metastore."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from airflow_hive_federation.metastore.idl import types

#: A table, or a partition: each has a storage descriptor, parameters, column statistics and a write id.
TableOrPartition: TypeAlias = types.Table | types.Partition

#: One of the two types; a function of it returns the type of its argument.
Described = TypeVar("Described", types.Table, types.Partition)
