"""Chooses the files to read in a directory, with regard to the markers of Hive 3's compactor."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_hive_federation.acid.names import METADATA_FILE, is_acid_directory, parse_directory
from airflow_hive_federation.acid.snapshot import AcidState, acid_state
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.model import bounded_json
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.json_values import Fields
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.storage.filesystem import open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions


def chosen(
    location: str,
    listing: Sequence[FileEntry],
    write_ids: ValidWriteIds,
    txns: ValidTxns,
    storage_options: StorageOptions | None,
) -> AcidState:
    """Read the markers of Hive 3's compactor, and choose the files to read in a directory.

    :param listing: all files below the directory, and empty directories.

    The other parameters, and the exceptions, are those of :func:`.snapshot.acid_state`.
    """
    compacted = [
        entry.path.rpartition("/")[0]
        for entry in listing
        if _is_mark_of_a_base(entry.path)
        and _is_marked_compacted(f"{location}/{entry.path}", storage_options)
    ]
    return acid_state(listing, write_ids, txns, compacted_bases=compacted)


def _is_mark_of_a_base(path: str) -> bool:
    *parents, file = path.split("/")
    name = parents[-1] if parents else ""
    if file != METADATA_FILE or not name.startswith("base_") or not is_acid_directory(name):
        return False
    if any(parent.startswith((".", "_")) for parent in parents):
        # The compactor is still writing it, in a directory that is no part of the table (``_tmp_…``).
        return False
    # A transaction in the directory's name marks a compacted base already.
    return parse_directory(name).visibility_txn_id == 0


def _is_marked_compacted(uri: str, storage_options: StorageOptions | None) -> bool:
    """Return whether a marker (``AcidUtils.MetaDataFile``) states that its directory is compacted."""
    try:
        content = Fields(bounded_json.loads(read_marker(uri, storage_options)))
        return content.needed("dataFormat", str) == "compacted"
    except ValueError as error:
        raise AcidFormatError(
            f"{uri} cannot be read as Hive's marker of a directory.",
            remedy="Restore the file, or let Hive compact the table or partition (major).",
            path=uri,
        ) from error


def read_marker(uri: str, storage_options: StorageOptions | None) -> bytes:
    """Return the content of a small file, such as the marker of a directory."""
    filesystem, path = open_filesystem(uri, storage_options)
    with storage_errors(uri), filesystem.open(path, "rb") as file:
        return bytes(file.read())
