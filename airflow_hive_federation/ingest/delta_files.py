"""Writes the ORC files of a transaction batch, one per bucket; each is readable after every commit.

Each commit appends a stripe and a tail that describes all stripes so far, and then writes the file's length
to ``bucket_N_flush_length`` as eight bytes. Hive's readers take from it how much of the file counts
(``OrcAcidUtils.getLastFlushLength``). Closing the batch removes this side file. A batch of one transaction
needs none, because no reader opens its directory before the commit.

Until its first commit a file has a hidden name, because a reader of earlier transactions of the batch would
fail on a file that it cannot read yet.

Stores that cannot append get the whole file at the commit; such a file serves one transaction.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from airflow_hive_federation.acid.names import ACID_VERSION, VERSION_FILE, bucket_file, side_file
from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.model.types import Field, HiveType
from airflow_hive_federation.orc.assembly import PROLEPTIC, AssembledFile, Mark, Stripe, encode, type_messages
from airflow_hive_federation.orc.plain import columns_of, constant, counting, plain_stripe, structs
from airflow_hive_federation.orc.properties import NO_FILTERS, BloomFilters
from airflow_hive_federation.storage import durable
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.publishing import make_directory, write_atomically
from airflow_hive_federation.tables.write.plan import TableLayout

_ACID_TYPES = ("int", "bigint", "int", "bigint", "bigint")
_INSERT = 0
"""Marks an inserted row (``OrcRecordUpdater.INSERT_OPERATION``)."""
_BUCKET_FLAG = 0x20000000
"""Begins a row id's bucket property: version 1 of Hive's ``BucketCodec``."""


def acid_types(layout: TableLayout) -> list[bytes]:
    """Return the ORC type messages of the columns of a table's files."""
    row = HiveType(name="struct", fields=tuple(Field(column.name, column.type) for column in layout.columns))
    types = [*(HiveType(name=name) for name in _ACID_TYPES), row]
    return type_messages(HiveType(name="struct", fields=tuple(map(Field, ACID_COLUMNS, types))))


def encoded(
    rows: pa.RecordBatch,
    *,
    bucket: int,
    write_id: int,
    first_row_id: int,
    compression: str,
    optimized: bool,
    filters: BloomFilters = NO_FILTERS,
) -> list[Stripe]:
    """Encode rows of one bucket with their row ids, mostly without holding the interpreter lock.

    :param optimized: encode quickly, without indexes, dictionaries and compression; a major compaction adds
        them later.
    :param filters: Bloom filters of files with indexes.
    """
    if optimized:
        return [_acid_stripe(rows, bucket, write_id, first_row_id)]
    count = rows.num_rows
    ids = pa.repeat(pa.scalar(write_id, pa.int64()), count)
    table = pa.Table.from_arrays(
        [
            pa.repeat(pa.scalar(_INSERT, pa.int32()), count),
            ids,
            pa.repeat(pa.scalar(_bucket_property(bucket), pa.int32()), count),
            pa.array(np.arange(first_row_id, first_row_id + count, dtype=np.int64)),
            ids,
            pa.StructArray.from_arrays(rows.columns, names=rows.schema.names),
        ],
        names=list(ACID_COLUMNS),
    )
    return encode(table, compression, filters=filters)


def _acid_stripe(rows: pa.RecordBatch, bucket: int, write_id: int, first_row_id: int) -> Stripe:
    count = rows.num_rows
    ids = constant(write_id, count)
    acid_columns = [
        constant(_INSERT, count),
        ids,
        constant(_bucket_property(bucket), count),
        counting(first_row_id, count),
        ids,
    ]
    return plain_stripe([structs(count), *acid_columns, structs(count), *columns_of(rows)], count)


class DeltaFile:
    """The file of one bucket in one delta directory; it is not open between two calls.

    :param directory: URI of the delta.
    :param compression: compression of the stripes.
    :param indexed: the stripes have indexes.
    :param side: several transactions commit to the file, so it needs a side file.
    """

    def __init__(
        self,
        directory: str,
        bucket: int,
        types: Sequence[bytes],
        *,
        compression: str,
        indexed: bool,
        side: bool,
        storage_options: StorageOptions | None = None,
    ) -> None:
        self.bucket = bucket
        self.uri = f"{directory}/{bucket_file(bucket)}"
        self.location = directory.rpartition("/")[0]
        self.rows = 0
        self.next_row_id = 0
        self._pending = _Pending()
        self._assembled = AssembledFile(
            self._pending,  # type: ignore[arg-type]
            types,
            compression=compression,
            calendar=PROLEPTIC,
            indexed=indexed,
        )
        self._store = _store(directory, self.uri, storage_options, side=side)
        self._key_index: list[str] = []
        self._is_flushed = True
        self.begin()

    def begin(self) -> None:
        """Begin another transaction."""
        self.next_row_id = 0
        self._set_mark()

    @property
    def is_whole(self) -> bool:
        """Return whether the file is still the one that was written; a file without a row is.

        :raises StorageError: the file cannot be looked at.
        """
        return self._store.is_whole()

    def append(self, write_id: int, stripes: Sequence[Stripe]) -> None:
        """Append stripes of :func:`encoded` whose row ids begin at :attr:`next_row_id`.

        Readers cannot see them before :meth:`flush`.

        :raises StorageError: the stripes cannot be written.
        """
        for stripe in stripes:
            self._assembled.add(stripe)
            self.next_row_id += stripe.rows
            self._key_index.append(f"{write_id},{_bucket_property(self.bucket)},{self.next_row_id - 1};")
        self._is_flushed = False
        self._store.append(self._pending.drained())

    def flush(self) -> int:
        """Publish the appended stripes, which the commit then makes visible; return the file's length.

        :raises StorageError: the file cannot be written.
        """
        if self._is_flushed:
            return self._assembled.mark().offset
        self.rows = self._assembled.rows
        length = self._assembled.flush(
            {
                "hive.acid.key.index": "".join(self._key_index).encode(),
                "hive.acid.stats": f"{self.rows},0,0".encode(),
                "hive.acid.version": b"2",
            }
        )
        self._store.append(self._pending.drained())
        self._store.sync()
        # The bytes are on the disk. From here on readers may read the new length, also after an error.
        self._set_mark()
        self._is_flushed = True
        self._store.publish(length)
        return length

    def rewind(self) -> None:
        """Cut off the stripes that the present transaction wrote and did not publish.

        Rows that it published, in a commit that failed, stay in the file, and the aborted write id hides
        them: readers may already have read the file's new length.

        :raises StorageError: the file cannot be cut off; :meth:`close` then keeps the side file.
        """
        if self._assembled.mark() == self._mark:
            return
        self._assembled.rewind(self._mark)
        self._is_flushed = True
        self._pending.drained()
        del self._key_index[self._mark_keys :]
        self.rows = self._assembled.rows
        self._store.cut(self._mark.offset if self.rows else 0)
        if not self.rows:
            # The file begins with its first byte again.
            self._pending.write(b"ORC")

    def close(self) -> None:
        """Remove the side file, so that the whole file counts; remove the file itself if it has no commit.

        The side file stays if the file has bytes that were neither published nor cut off: readers then obey
        its last length, as they do after a crash of the writer.

        :raises StorageError: the side file cannot be removed.
        """
        self._store.finish()

    def _set_mark(self) -> None:
        """Note the state to which :meth:`rewind` cuts the file back."""
        self._mark: Mark = self._assembled.mark()
        self._mark_keys = len(self._key_index)


class _Pending:
    """A writable that an assembled file uses as its file; it collects pieces to be appended later."""

    def __init__(self) -> None:
        self._pieces: list[bytes | memoryview] = []

    def write(self, piece: bytes | memoryview) -> int:
        self._pieces.append(piece)
        return len(piece)

    def drained(self) -> list[bytes | memoryview]:
        pieces, self._pieces = self._pieces, []
        return pieces


class _LocalStore:
    """A store that appends to a file of this machine."""

    def __init__(self, directory: Path, uri: str, path: Path, *, side: bool) -> None:
        self._directory, self._uri, self._path = directory, uri, path
        self._hidden = path.with_name(f".{path.name}")
        self._side = path.with_name(side_file(path.name)) if side else None
        self._is_visible = self._has_side = False
        # The file may end with bytes that are not on the disk, or without a tail.
        self._is_ragged = False
        self._length = 0
        self._identity = (0, 0)

    def is_whole(self) -> bool:
        if not self._length:
            return True
        with storage_errors(self._uri):
            try:
                found = self._present.stat()
            except FileNotFoundError:
                return False
        return (found.st_size, found.st_dev, found.st_ino) == (self._length, *self._identity)

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        with storage_errors(self._uri):
            if not self._length:
                durable.make_directories(self._directory)
            # Appending to a new file in place of a removed one would leave it without its beginning.
            with self._present.open("r+b" if self._length else "ab") as file:
                length = file.seek(0, os.SEEK_END)
                if length != self._length:
                    raise StorageError(
                        f"{self._uri} has {length} bytes, and {self._length} were written: another process "
                        "has changed it.",
                        remedy="Find the process that changes files of the table without a lock.",
                        path=self._uri,
                    )
                self._is_ragged = True
                file.writelines(pieces)
                self._length = file.tell()
                found = os.fstat(file.fileno())
                self._identity = (found.st_dev, found.st_ino)

    def sync(self) -> None:
        # The rows are synced first, then the length that counts, then the name: so after a crash no length
        # exceeds its file.
        with storage_errors(self._uri):
            durable.sync_file(self._present)
        self._is_ragged = False

    def publish(self, length: int) -> None:
        if not self._is_visible:
            self._refuse_present()
        if self._side is not None:
            self._has_side = True
            with storage_errors(self._uri), self._side.open("ab") as file:
                file.write(length.to_bytes(8, "big"))
                durable.sync_open_file(file)
        if not self._is_visible:
            # Buckets of a directory are published in parallel, so the version file is written atomically.
            write_atomically(str(self._directory / VERSION_FILE), [ACID_VERSION.encode()])
            with storage_errors(self._uri):
                durable.rename(self._hidden, self._path)
            self._is_visible = True

    def _refuse_present(self) -> None:
        """Refuse to replace a file, e.g. one that was copied with the directory of its table."""
        with storage_errors(self._uri):
            if self._path.exists():
                raise StorageError(
                    f"{self._uri} exists, and this process has not written it.",
                    remedy="Connect again, and send the transaction's records again: they get other files.",
                    path=self._uri,
                )

    def cut(self, length: int) -> None:
        # Of a file that somebody has removed, nothing is left to cut off.
        with storage_errors(self._uri), suppress(FileNotFoundError):
            if length:
                with self._present.open("r+b") as file:
                    if file.seek(0, os.SEEK_END) > length:
                        file.truncate(length)
                    # The side file is removed in the end; from then on the file has to end with a tail.
                    durable.sync_open_file(file)
            else:
                self._hidden.unlink(missing_ok=True)
        self._length = length
        self._is_ragged = False

    def finish(self) -> None:
        with storage_errors(self._uri):
            if not self._is_visible and (self._length or self._is_ragged):
                self._hidden.unlink(missing_ok=True)
            # Without its side file, all of a file counts, so the tail of earlier commits would be hidden.
            is_needed = self._is_visible and (self._is_ragged or self._is_replaced())
            if self._side is not None and self._has_side and not is_needed:
                self._side.unlink(missing_ok=True)
            # Hive ignores an empty directory, but no reader needs it.
            if self._directory.exists() and not any(self._directory.iterdir()):
                self._directory.rmdir()

    def _is_replaced(self) -> bool:
        """Return whether another file has the name, e.g. of a table that was dropped and created again."""
        return self._path.exists() and not self.is_whole()

    @property
    def _present(self) -> Path:
        return self._path if self._is_visible else self._hidden


class _UploadingStore:
    """A store that collects a file on this machine and uploads it whole when it is published."""

    def __init__(self, directory: str, uri: str, options: StorageOptions | None) -> None:
        self._directory, self._uri, self._options = directory, uri, options
        with tempfile.NamedTemporaryFile(prefix="hive-bucket-", delete=False) as file:
            self._path = Path(file.name)

    def is_whole(self) -> bool:
        # The file serves one transaction.
        return True

    def append(self, pieces: Sequence[bytes | memoryview]) -> None:
        with storage_errors(self._uri), self._path.open("ab") as file:
            file.writelines(pieces)

    def sync(self) -> None:
        # The store keeps what it acknowledges, and this machine's copy need not survive a crash.
        pass

    def publish(self, _length: int) -> None:
        make_directory(self._directory, self._options)
        filesystem, path = open_filesystem(self._uri, self._options)
        with storage_errors(self._uri):
            filesystem.pipe_file(f"{path.rpartition('/')[0]}/{VERSION_FILE}", ACID_VERSION.encode())
            filesystem.put_file(str(self._path), path)

    def cut(self, length: int) -> None:
        with storage_errors(self._uri):
            os.truncate(self._path, length)

    def finish(self) -> None:
        self._path.unlink(missing_ok=True)


def _bucket_property(bucket: int) -> int:
    return _BUCKET_FLAG | bucket << 16


def _store(
    directory: str, uri: str, options: StorageOptions | None, *, side: bool
) -> _LocalStore | _UploadingStore:
    local = local_path(directory)
    if local is None:
        return _UploadingStore(directory, uri, options)
    return _LocalStore(Path(local), uri, Path(local_path(uri) or ""), side=side)
