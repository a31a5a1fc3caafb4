"""Takes digests of the listings of partitions' directories, by which the next dump finds changed ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b

from airflow_hive_federation.acid.names import is_acid_directory, parse_directory
from airflow_hive_federation.model.files import FileEntry
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.format.files import DataLocation


def directory_digest(listing: Iterable[FileEntry]) -> str:
    """Return a digest of a directory's files and empty directories: their paths, sizes and times.

    :param listing: sorted by path.
    """
    lines = [f"{entry.path}\0{entry.size_bytes}\0{entry.modified_ns}\n" for entry in listing]
    return blake2b("".join(lines).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


class DirectoryDigests:
    """Collects digests of partitions' directories whose visible files only a change in them can change.

    The end of a transaction that is open changes the files that readers see of a directory, but not the
    directory itself. A directory with writes of such a transaction has no digest.

    :param write_ids: the table's write ids at the dump's moment.
    :param transactions: the source's transactions at the dump's moment.
    """

    def __init__(self, write_ids: ValidWriteIds, transactions: ValidTxns) -> None:
        self._write_ids = write_ids
        self._transactions = transactions
        self._digests: dict[str, str] = {}

    def watch(
        self, listings: Iterable[tuple[DataLocation, list[FileEntry]]]
    ) -> Iterator[tuple[DataLocation, list[FileEntry]]]:
        """Pass listings on, and note their digests."""
        for place, listing in listings:
            if place.partition and self._is_settled(listing):
                self._digests[place.partition] = directory_digest(listing)
            yield place, listing

    def of(self, partition: str) -> str:
        """Return the digest of a partition's directory; empty without one."""
        return self._digests.get(partition, "")

    def _is_settled(self, listing: Iterable[FileEntry]) -> bool:
        # An entry's last part is a file's name, or empty.
        directories = {part for entry in listing for part in entry.path.split("/")[:-1]}
        return all(self._is_ended(name) for name in directories if is_acid_directory(name))

    def _is_ended(self, directory: str) -> bool:
        name = parse_directory(directory)
        write_ids = self._write_ids
        if name.max_write_id > write_ids.high_watermark:
            return False
        if write_ids.has_open(name.min_write_id, name.max_write_id):
            return False
        return not name.visibility_txn_id or self._transactions.is_valid(name.visibility_txn_id)
