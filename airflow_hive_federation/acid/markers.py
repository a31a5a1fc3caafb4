"""The choice of a directory's files where Hive 3's compactor has left its markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_hive_federation.acid.names import METADATA_FILE, is_acid_directory, parse_directory
from airflow_hive_federation.acid.snapshot import AcidState, acid_state
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors


def chosen(
    location: str,
    listing: Sequence[FileEntry],
    write_ids: ValidWriteIds,
    txns: ValidTxns,
    storage_options: Mapping[str, Any] | None,
) -> AcidState:
    """Choose what to read of a directory, having looked into the markers of Hive 3's compactor.

    :param listing: what lies below the directory, empty directories included.

    Otherwise as :func:`.snapshot.acid_state`.
    """
    compacted = [
        entry.path.rpartition("/")[0]
        for entry in listing
        if _is_mark_of_a_base(entry.path) and _says_compacted(f"{location}/{entry.path}", storage_options)
    ]
    return acid_state(listing, write_ids, txns, compacted_bases=compacted)


def _is_mark_of_a_base(path: str) -> bool:
    directory, _, file = path.rpartition("/")
    name = directory.rpartition("/")[2]
    if file != METADATA_FILE or not name.startswith("base_") or not is_acid_directory(name):
        return False
    # With a transaction in its name, the name tells already.
    return parse_directory(name).visibility_txn_id == 0


def _says_compacted(uri: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Read a marker of Hive 3's compactor (``AcidUtils.MetaDataFile``)."""
    try:
        said = bounded_json.loads(read_marker(uri, storage_options))
        return bool(said["dataFormat"] == "compacted")
    except (ValueError, TypeError, KeyError) as error:
        raise AcidFormatError(f"{uri} cannot be read as Hive's marker of a directory.", path=uri) from error


def read_marker(uri: str, storage_options: Mapping[str, Any] | None) -> bytes:
    """The content of a small file, as the marker of a directory is."""
    filesystem, path = open_filesystem(uri, storage_options)
    with storage_errors(uri), filesystem.open(path, "rb") as file:
        return bytes(file.read())
