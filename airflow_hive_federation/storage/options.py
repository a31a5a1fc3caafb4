"""Defines the type of storage options, which fsspec's drivers take and JSON documents hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

#: A value of a storage option; nested as in ``{"client_kwargs": {"endpoint_url": "http://…"}}``.
StorageValue: TypeAlias = (
    "bool | int | float | str | Sequence[StorageValue] | Mapping[str, StorageValue] | None"
)
#: Options for every URI, or a mapping from URI prefixes to options; see :func:`.filesystem.options_for`.
StorageOptions: TypeAlias = Mapping[str, StorageValue]
