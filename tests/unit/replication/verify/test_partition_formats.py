"""Partitions that are not like their table are known, and so are the directories of their files."""

from __future__ import annotations

from typing import Any

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.verify.partition_formats import PartitionFormats

ORC, TEXT = "OrcInputFormat", "TextInputFormat"


def storage(location: str, kind: str = ORC, *columns: str, **settings: str) -> types.StorageDescriptor:
    return types.StorageDescriptor(
        location=location,
        inputFormat=kind,
        cols=[types.FieldSchema(name=name, type="int") for name in columns or ("a",)],
        serdeInfo=types.SerDeInfo(serializationLib=f"{kind}SerDe", parameters=settings),
    )


def file(directory: str, path: str) -> VisibleFile:
    return VisibleFile(
        directory=directory, partition="", path=path, target_path=path, size_bytes=1, modified_ns=1
    )


TABLE = types.Table(tableName="t", sd=storage("file:/w/t"))
PARTITIONS = [
    types.Partition(values=["orc"], sd=storage("file:/w/t/p=orc")),
    types.Partition(values=["text"], sd=storage("file:///w/t/p=text", TEXT)),
    types.Partition(values=["in"], sd=storage("file:/w/t/p=text/p=in")),
    types.Partition(values=["away"], sd=storage("file:/away", TEXT)),
    types.Partition(values=["other"], sd=storage("file:/w/t/p=other", TEXT, **{"field.delim": ";"})),
    types.Partition(values=["more"], sd=storage("file:/w/t/p=more", ORC, "a", "b")),
]
LOCATIONS = [partition.sd.location for partition in PARTITIONS if partition.sd and partition.sd.location]


def by_wire() -> PartitionFormats:
    formats = PartitionFormats.of(TABLE)
    assert list(formats.noting(TABLE, PARTITIONS)) == PARTITIONS
    return formats.among(LOCATIONS)


def by_json() -> PartitionFormats:
    assert TABLE.sd is not None
    formats = PartitionFormats(to_json(TABLE.sd))
    for partition in PARTITIONS:
        assert partition.sd is not None
        formats.add(to_json(partition.sd))
    return formats.among(LOCATIONS)


def test_each_file_has_the_format_of_the_innermost_partition_that_it_lies_in() -> None:
    for formats in (by_wire(), by_json()):
        kinds = [(storage["inputFormat"], len(storage["cols"])) for storage in formats.storages]
        assert kinds == [(TEXT, 1), (TEXT, 1), (ORC, 2)]
        cases: dict[tuple[str, str], tuple[str, str, Any]] = {
            # An external table's directory is listed as a whole.
            ("file:/w/t", "p=orc/0"): ("file:/w/t/p=orc", "0", None),
            ("file:/w/t", "p=text/sub/0"): ("file:/w/t/p=text", "sub/0", 0),
            ("file:/w/t", "p=text/p=in/0"): ("file:/w/t/p=text/p=in", "0", None),
            ("file:/w/t", "p=other/0"): ("file:/w/t/p=other", "0", 1),
            ("file:/w/t", "p=more/0"): ("file:/w/t/p=more", "0", 2),
            ("file:/w/t", "p=none/0"): ("file:/w/t", "p=none/0", None),
            ("file:/w/t/p=text", "delta_1_1/0"): ("file:/w/t/p=text", "delta_1_1/0", 0),
            ("file:/away", "0"): ("file:/away", "0", 0),
        }
        for (directory, path), expected in cases.items():
            assert formats.place(file(directory, path)) == expected


def test_nothing_is_kept_of_a_table_whose_partitions_are_like_it() -> None:
    formats = PartitionFormats.of(TABLE)
    assert list(formats.noting(TABLE, PARTITIONS[:1])) == PARTITIONS[:1]
    formats.among(iter(["file:/w/t/p=orc"]))
    assert (formats.storages, formats._indexes) == ([], {})
    assert formats.place(file("file:/w/t", "p=orc/0")) == ("file:/w/t", "p=orc/0", None)
