"""Checks that hold in each object store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from airflow_hive_federation.errors import FileVanishedError, StorageError
from airflow_hive_federation.storage.filesystem import reading
from airflow_hive_federation.storage.listing import (
    file_size,
    has_entries,
    is_there,
    list_directory,
    list_files,
)
from airflow_hive_federation.storage.publishing import write_atomically

Options = Mapping[str, Any]

#: Hive writes such characters into names of partitions; stores take them as they are.
NAMES = ["a", "p=a%3Ab/delta_1_1/bucket_0", "p=x y+z#?/é", "_orc_acid_version", ".hidden"]


def put(uri: str, content: bytes, options: Options) -> None:
    write_atomically(uri, [content], options)


def content_of(uri: str, options: Options) -> bytes:
    with reading(uri, options) as file:
        content: bytes = file.read()
    return content


def check_listing(bucket: str, options: Options, *, other_scheme: str) -> None:
    """Write files, and list them by both schemes of the store.

    :param bucket: URI of an empty bucket.
    """
    for number, name in enumerate(NAMES):
        put(f"{bucket}/t/{name}", b"x" * number, options)
    put(f"{bucket}/t_beside/other", b"", options)
    put(f"{bucket}/t/p=1/.bucket_0.crc", b"", options)
    scheme = bucket.partition(":")[0]
    for spelled in (f"{bucket}/t", f"{bucket.replace(scheme, other_scheme, 1)}/t/"):
        files = {file.path: file for file in list_files(spelled, options=options)}
        assert {name: file.size_bytes for name, file in files.items()} == {n: NAMES.index(n) for n in NAMES}
        assert all(file.modified_ns > 0 for file in files.values())
    assert list_directory(f"{bucket}/t/p=x y+z#?", options=options) == {"é": 2}
    assert file_size(f"{bucket}/t/{NAMES[1]}", options=options) == 1
    with pytest.raises(FileVanishedError) as caught:
        list_files(f"{bucket}/none", options=options)
    assert caught.value.path == f"{bucket}/none"
    assert list_files(f"{bucket}/none", options=options, missing_ok=True) == []
    assert not has_entries(f"{bucket}/none", options=options)
    assert not is_there(f"{bucket}/none", options=options)
    with pytest.raises(StorageError, match="is a file"):
        list_files(f"{bucket}/t/a", options=options)
