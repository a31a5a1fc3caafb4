"""The hidden directory in which a statement's tasks write, and what a killed driver left of such.

Names begin with a dot, which no reader of Hive's or Spark's looks at, and say the transaction. A transaction
that is no longer open writes nothing more, so its directories can go.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.publishing import make_directory
from airflow_hive_federation.tables.write.publish import remove_trees

_PREFIX = ".hive-staging_spark_"


@contextmanager
def staging_directory(
    location: str, txn_id: int, storage_options: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield the URI of a hidden directory inside a table's, removed in the end.

    Attempts of tasks may outlive a job that failed. They make no directory (``StagedOutput``), and the one
    there is gets another name before it is removed, so that nothing can be added to it while it goes.

    :param location: URI of the table's directory.
    :raises StorageError: it cannot be made, or removed.
    """
    uri = f"{location}/{_PREFIX}{txn_id}_{uuid.uuid4().hex[:12]}"
    make_directory(uri, storage_options)
    try:
        yield uri
    finally:
        ending = f"{uri}_ending"
        path, new_path = local_path(uri), local_path(ending)
        if path is not None and new_path is not None:
            # Gone if our transaction was given up meanwhile, and another statement swept what it left.
            with suppress(FileVanishedError), storage_errors(uri):
                Path(path).rename(new_path)
        remove_trees([ending, uri], storage_options)


def staging_txn(name: str) -> int | None:
    """The transaction in the name of a directory of ours; ``None`` for other names."""
    digits = name.removeprefix(_PREFIX).partition("_")[0]
    return int(digits) if name.startswith(_PREFIX) and digits.isdecimal() else None


def sweep(
    location: str, known_txns: Callable[[], ValidTxns], storage_options: Mapping[str, Any] | None = None
) -> list[str]:
    """Remove the directories of transactions that are not open any more; return their names.

    :param known_txns: asks for the transactions of this moment; called if there is any such directory.
    :raises StorageError: the table's directory cannot be listed, or one of these not removed.
    """
    filesystem, path = open_filesystem(location, storage_options)
    names: list[str] = []
    with suppress(FileVanishedError), storage_errors(location):
        names = [str(entry).rstrip("/").rpartition("/")[2] for entry in filesystem.ls(path, detail=False)]
    found = {name: txn_id for name in names if (txn_id := staging_txn(name)) is not None}
    if not found:
        return []
    txns = known_txns()
    # One above the watermark began after we asked.
    ended = [
        name
        for name, txn_id in found.items()
        if txn_id <= txns.high_watermark and txn_id not in txns.open_ids
    ]
    remove_trees([f"{location}/{name}" for name in ended], storage_options)
    return ended
