"""Lists the directories of external tables to copy, and writes and reads the file that lists them. Pure.

By the design of replication V2, one entry covers a table with all partitions that lie inside its directory; a
partition elsewhere has an entry of its own. A line is ``table,base64`` or ``table,partition,base64``, and the
last part is the Base64 of the fully qualified path.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from airflow_hive_federation.errors import DumpCorruptError
from airflow_hive_federation.replication.format import values
from airflow_hive_federation.replication.format.files import DataLocation
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.metadata.table_locations import TableLocations

FILE_NAME = "_external_tables_info"


@dataclass(frozen=True, kw_only=True)
class ExternalEntry:
    """A directory to copy.

    :param table: the external table.
    :param location: fully qualified URI of the directory on the source.
    :param partition: name of the partition, if the directory belongs to one outside the table's directory.
    """

    table: str
    location: str
    partition: str = ""

    def check(self) -> None:
        """Check that no name and no path leads elsewhere.

        :raises ValueError: one does.
        """
        values.table_name(self.table)
        values.location(self.location)
        values.partition_or_table(self.partition)


def roots(places: TableLocations) -> Iterator[DataLocation]:
    """Yield the table's directory, and those of partitions outside it."""
    yield DataLocation(partition="", location=places.root)
    yield from places.outside()


def listed_places(kind: TableKind, places: TableLocations) -> tuple[DataLocation, ...]:
    """Return these directories of an external table; none of another table."""
    return tuple(roots(places)) if kind is TableKind.EXTERNAL else ()


def entries(table: str, places: TableLocations) -> list[ExternalEntry]:
    """Return the entries of one external table."""
    return [
        ExternalEntry(table=table, location=root.location, partition=root.partition) for root in roots(places)
    ]


def to_text(entries: Iterable[ExternalEntry]) -> str:
    """Return the text of the file."""
    return "".join(
        ",".join(filter(None, (entry.table, entry.partition, _encode(entry.location)))) + "\n"
        for entry in entries
    )


def parse(text: str) -> list[ExternalEntry]:
    """Parse the text of the file.

    :raises DumpCorruptError: a line that is no entry.
    """
    return [_parse_line(number, line) for number, line in enumerate(text.split("\n"), 1) if line]


def _parse_line(number: int, line: str) -> ExternalEntry:
    # A partition's name may hold commas; a table's name and Base64 never do.
    table, _, rest = line.partition(",")
    partition, _, encoded = rest.rpartition(",")
    try:
        location = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _bad(number, line) from error
    if not table or not location:
        raise _bad(number, line)
    return ExternalEntry(table=table, location=location, partition=partition)


def _bad(number: int, line: str) -> DumpCorruptError:
    return DumpCorruptError(
        f"{FILE_NAME}, line {number}: {line!r} is no entry for an external location.",
        remedy="Find out who wrote it: only Airflow and Spark may write into a dump. Then dump again.",
        file=FILE_NAME,
    )


def _encode(location: str) -> str:
    return base64.b64encode(location.encode()).decode()
