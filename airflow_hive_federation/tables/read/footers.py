"""Reads the footers of ORC and Parquet files in the driver, before Spark reads the files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
from pyarrow import orc, parquet

from airflow_hive_federation.acid.rewrite import ACID_COLUMNS
from airflow_hive_federation.errors import AcidFormatError
from airflow_hive_federation.orc.tail import damaged, read_tail
from airflow_hive_federation.storage.filesystem import local_path, open_filesystem, storage_errors
from airflow_hive_federation.storage.options import StorageOptions
from airflow_hive_federation.storage.side_by_side import side_by_side

T = TypeVar("T")
_VERSION = b"2"


def row_columns(paths: Sequence[str], options: StorageOptions | None) -> list[tuple[str, ...]]:
    """Return the names of the row's columns of each ACID file, in lower case.

    :param paths: insert files.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is truncated, lacks the columns of an ACID file, is of an unknown
        version, or holds updates or deletes, as Hive 2 wrote them.
    """

    def names(file: orc.ORCFile, path: str) -> tuple[str, ...]:
        check_inserts(file, path)
        return tuple(field.name.lower() for field in file.schema.field("row").type)

    return each(paths, options, names)


def each(
    paths: Sequence[str], options: StorageOptions | None, ask: Callable[[orc.ORCFile, str], T]
) -> list[T]:
    """Open ORC files in parallel and call ``ask`` with each.

    :return: the results of ``ask``, in the order of the paths.
    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is not a whole ORC file.
    """

    def answer(path: str) -> T:
        with _opened(path, options) as file:
            return ask(file, path)

    return side_by_side(answer, paths)


def parquet_footers(
    paths: Sequence[str], options: StorageOptions | None
) -> list[tuple[str, parquet.FileMetaData]]:
    """Return each Parquet file with its footer.

    :raises FileVanishedError: if a file is gone.
    :raises AcidFormatError: if a file is not a whole Parquet file.
    """

    def answer(path: str) -> tuple[str, parquet.FileMetaData]:
        filesystem, name = open_filesystem(path, options)
        with storage_errors(path), filesystem.open(name, "rb") as file:
            try:
                return path, parquet.read_metadata(file)
            except pa.ArrowException as error:
                raise damaged(f"{path} is not a whole Parquet file: {error}.", path) from error

    return side_by_side(answer, paths)


def check_acid(file: orc.ORCFile, path: str) -> None:
    """Make sure that a file has the six columns of ACID files.

    :raises AcidFormatError: if it has other columns.
    """
    if tuple(file.schema.names) != ACID_COLUMNS:
        raise damaged(f"{path} does not have the columns of an ACID file.", path)


def check_inserts(file: orc.ORCFile, path: str) -> None:
    """Make sure that a file is one of inserted rows, in the form that Hive writes since 3.0.

    :raises AcidFormatError: if it lacks the columns of an ACID file, is of an unknown version, or holds
        updates or deletes, as Hive 2 wrote them.
    """
    check_acid(file, path)
    metadata = dict(file.metadata or {})
    version = metadata.get(b"hive.acid.version", _VERSION)
    if version != _VERSION:
        raise AcidFormatError(
            f"{path} is of ACID version {version.decode(errors='replace')!r}.",
            remedy="Version 2 is read, which Hive writes since 3.0. Let Hive compact the table (major).",
            path=path,
        )
    # The numbers of inserts, updates and deletes (AcidStats).
    if set(metadata.get(b"hive.acid.stats", b"0,0,0").split(b",")[1:]) - {b"0"}:
        raise AcidFormatError(
            f"{path} holds updates or deletes among its inserts, as Hive 2 wrote them.",
            remedy="Let Hive compact the table (major) before it is read.",
            path=path,
        )


@contextmanager
def _opened(path: str, options: StorageOptions | None) -> Iterator[orc.ORCFile]:
    filesystem, name = open_filesystem(path, options)
    with storage_errors(path):
        local = local_path(path)
        source = filesystem.open(name, "rb")
        try:
            # pyarrow's reader trusts the tail, and some damaged tails make it end the process.
            read_tail(source, path)
            source.seek(0)
            yield orc.ORCFile(local or source)
        except pa.ArrowException as error:
            raise damaged(f"{path} is not a whole ORC file: {error}.", path) from error
        except OSError as error:
            # pyarrow also raises OSError, without an errno, if bytes are missing.
            if error.errno is not None:
                raise
            raise damaged(f"{path} is not a whole ORC file: {error}.", path) from error
        finally:
            source.close()
