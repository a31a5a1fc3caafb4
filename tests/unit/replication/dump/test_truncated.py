"""Transactional tables and partitions whose files a TRUNCATE has removed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.replication.dump.evidence import Evidence
from airflow_hive_federation.replication.dump.relocated import FormerPlaces
from airflow_hive_federation.replication.dump.truncated import is_truncated, truncated_partitions
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.files import VisibleFile
from airflow_hive_federation.replication.format.kinds import TableKind
from airflow_hive_federation.replication.format.manifest import TableEntry
from tests.support.dumps import manifest

WRITE_IDS = ValidWriteIds(table="d.t", high_watermark=9, aborted_ids=(8,))
TRANSACTIONS = ValidTxns(high_watermark=20, open_ids=(7,), aborted_ids=(8,))

#: The former files, those that are there now, and whether rows of the former ones stay on the target.
CASES = [
    ("delta_1_1/a", "", True),
    ("delta_1_1/a", "delta_2_2/a", True),
    ("delta_1_1/a delta_2_2/a", "delta_1_1/a delta_2_2/a delta_3_3/a", False),
    ("delta_1_1/a delta_2_2/a", "delta_2_2/a", True),
    # Hive 4 leaves a base.
    ("delta_1_1/a delta_2_2/a", "base_0000003/_metadata_acid", False),
    ("base_1/a", "base_0000003/_metadata_acid delta_4_4/a", False),
    ("delta_4_4/a", "base_0000003/a", True),
    # Compactions.
    ("delta_1_1_0000/a delta_2_2_0000/a", "delta_1_2/a", False),
    ("delta_1_1_0000/a delta_1_1_0001/a", "delta_1_1_0001/a", True),
    ("delta_1_1/a delete_delta_2_2/a", "delta_1_2/a", True),
    ("delta_1_1/a delete_delta_2_2/a", "delta_1_2/a delete_delta_1_2/a", False),
    ("000000_0", "delta_1_1/a", True),
    ("000000_0", "base_0000001/a", False),
    ("", "delta_1_1/a", False),
]
#: Directories that readers do not see replace none.
UNSEEN = [
    ("delta_1_1/a", "base_0000008/a", True),
    ("delta_1_1/a", "base_0000012/a", True),
    ("delta_1_1/a", "base_0000003_v0000007/a", True),
    ("delta_1_1/a", "base_0000003_v0000008/a", True),
    # Hive 4 compacts what was written after a TRUNCATE, and its cleaner removes the rest.
    ("delta_1_1/a", "base_0000003_v0000006/a", False),
    ("delta_1_1/a", "base_0000003_v0000006/a delta_4_4/a", False),
    ("delta_1_1/a delta_2_2/a", "delta_1_2_v0000006/a", False),
    ("delta_1_1_v0000005/a", "delta_1_1_v0000005/a", False),
]


def files(paths: str, partition: str = "") -> list[VisibleFile]:
    place = {"directory": "file:/w/t", "partition": partition}
    return [
        VisibleFile(**place, path=path, target_path=path, size_bytes=1, modified_ns=1)
        for path in paths.split()
    ]


@pytest.mark.parametrize(("former", "present", "expected"), CASES)
def test_partitions(tmp_path: Path, former: str, present: str, expected: bool) -> None:
    before, now = (DumpDirectory(f"file:{tmp_path}/{name}") for name in ("before", "now"))
    before.write_files("t", [*files(former, "p=a"), *files("delta_1_1/a", "p=other")])
    before.finish_dump(manifest(TableEntry(name="t", kind=TableKind.FULL_ACID)))
    now.write_files("t", [*files(present, "p=a")])
    emptied = truncated_partitions(before, now, "t", lambda name: name == "p=a")
    assert emptied == ({"p=a"} if expected else set())


@pytest.mark.parametrize(("former", "present", "expected"), [*CASES, *UNSEEN])
@pytest.mark.parametrize("killed", [False, True])
def test_tables(tmp_path: Path, former: str, present: str, expected: bool, killed: bool) -> None:
    for path in present.split():
        file = tmp_path / "t" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b'{"thisFileVersion": "0", "dataFormat": "truncated"}')
    before = DumpDirectory(f"file:{tmp_path}/before")
    before.write_files("t", files(former))
    before.finish_dump(manifest(TableEntry(name="t", kind=TableKind.FULL_ACID)))

    class Index(dict[str, DumpDirectory]):
        of = dict.__getitem__

    index: Any = Index({} if killed else {"t": before})
    unfinished: Any = SimpleNamespace(dumps=[before] if killed else [])
    places = FormerPlaces(table_index=index, unfinished=unfinished)
    table = types.Table(
        dbName="d", tableName="t", sd=types.StorageDescriptor(location=f"file:{tmp_path}/t"), partitionKeys=[]
    )
    evidence = Evidence("d")
    folded: Any = SimpleNamespace(evidence=evidence)
    # A listing alone is no reason.
    assert not is_truncated(table, WRITE_IDS, TRANSACTIONS, folded, places)
    named = {"database": "d", "table": "t", "old_database": "d", "old_table": "t"}
    evidence.add(ev.TableAltered(event_id=1, event_type="ALTER_TABLE", truncated=True, **named))
    assert is_truncated(table, WRITE_IDS, TRANSACTIONS, folded, places) is expected
    assert not is_truncated(table, None, TRANSACTIONS, folded, places)
