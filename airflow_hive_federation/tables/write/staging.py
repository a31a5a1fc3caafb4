"""Makes the hidden directory in which a statement's tasks write, and removes those of killed drivers.

A directory's name begins with a dot, so that readers of Hive and Spark ignore it, and contains the
transaction's id. A transaction that is no longer open writes nothing more, so its directories can be removed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from airflow_hive_federation.errors import FileVanishedError
from airflow_hive_federation.model.write_ids import ValidTxns
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import make_directory
from airflow_hive_federation.storage.unfinished_uploads import abandon_all, has_uploads
from airflow_hive_federation.tables.write.publish import remove_trees

_PREFIX = ".hive-staging_spark_"


@contextmanager
def staging_directory(
    location: str, txn_id: int, storage_options: StorageOptions | None = None
) -> Iterator[str]:
    """Yield the URI of a hidden directory inside a table's directory, and remove it at the end.

    Task attempts may outlive a job that failed. They create no directory (``StagedOutput``), and the hidden
    directory is renamed before its removal, so that no attempt can add a file to it meanwhile.

    :param location: URI of the table's directory.
    :raises StorageError: if the directory cannot be made or removed.
    """
    uri = f"{location}/{_PREFIX}{txn_id}_{uuid.uuid4().hex[:12]}"
    make_directory(uri, storage_options)
    try:
        yield uri
    finally:
        ending = f"{uri}_ending"
        path, new_path = local_path(uri), local_path(ending)
        if path is not None and new_path is not None:
            # The directory is missing if our transaction was aborted meanwhile and another statement swept.
            with suppress(FileVanishedError), storage_errors(uri):
                Path(path).rename(new_path)
        _abandon(uri, storage_options)
        remove_trees([ending, uri], storage_options)


def staging_txn(name: str) -> int | None:
    """Return the transaction id in the name of a hidden directory; ``None`` for other names."""
    digits = name.removeprefix(_PREFIX).partition("_")[0]
    return int(digits) if name.startswith(_PREFIX) and digits.isdecimal() else None


def sweep(
    location: str, known_txns: Callable[[], ValidTxns], storage_options: StorageOptions | None = None
) -> list[str]:
    """Remove the hidden directories of transactions that are no longer open, and return their names.

    :param known_txns: returns the present transactions; called only if a hidden directory exists.
    :raises StorageError: if the table's directory cannot be listed, or a hidden directory not removed.
    """
    filesystem, path = open_filesystem(location, storage_options)
    names: list[str] = []
    with suppress(FileVanishedError), storage_errors(location):
        filesystem.invalidate_cache(path)
        names = [str(entry).rstrip("/").rpartition("/")[2] for entry in filesystem.ls(path, detail=False)]
    txn_of = {name: txn_id for name in names if (txn_id := staging_txn(name)) is not None}
    if not txn_of:
        return []
    txns = known_txns()
    # A transaction above the watermark began after the call.
    ended = [
        name
        for name, txn_id in txn_of.items()
        if txn_id <= txns.high_watermark and txn_id not in txns.open_ids
    ]
    for name in ended:
        _abandon(f"{location}/{name}", storage_options)
    remove_trees([f"{location}/{name}" for name in ended], storage_options)
    return ended


def _abandon(uri: str, storage_options: StorageOptions | None) -> None:
    """Abandon the uploads of attempts that do not count."""
    if has_uploads(uri):
        abandon_all(uri, storage_options)
