"""Writes take locks, and a transaction refuses locks that do not fit."""

from __future__ import annotations

import pytest

from airflow_hive_federation.metastore.idl.types import DataOperationType, LockLevel, LockType
from airflow_hive_federation.transactions.locks import TableWrite, WriteKind, lock_components, unnoted


@pytest.mark.parametrize(
    ("kind", "exclusive", "shared", "operation"),
    [
        ("insert", LockType.SHARED_READ, LockType.SHARED_READ, DataOperationType.INSERT),
        ("update", LockType.EXCL_WRITE, LockType.SHARED_WRITE, DataOperationType.UPDATE),
        ("delete", LockType.EXCL_WRITE, LockType.SHARED_WRITE, DataOperationType.DELETE),
        ("overwrite", LockType.EXCLUSIVE, LockType.EXCL_WRITE, DataOperationType.UPDATE),
    ],
)
def test_locks_as_hive_takes_them(
    kind: str, exclusive: LockType, shared: LockType, operation: DataOperationType
) -> None:
    write = TableWrite(database="d", table="t", kind=WriteKind(kind))
    assert lock_components([write])[0].type == exclusive
    assert lock_components([write], shared_writes=True)[0].type == shared
    assert lock_components([write])[0].operationType == operation


def test_a_partition_is_locked_by_its_name() -> None:
    write = TableWrite(database="d", table="t", kind=WriteKind.INSERT, partition="day=1")
    component = lock_components([write])[0]
    assert (component.level, component.partitionname) == (LockLevel.PARTITION, "day=1")
    assert component.isTransactional
    assert not component.isDynamicPartitionWrite


def test_partitions_that_show_later_are_left_to_the_metastore() -> None:
    component = lock_components([TableWrite(database="d", table="t", kind=WriteKind.INSERT, dynamic=True)])[0]
    assert (component.level, component.isDynamicPartitionWrite) == (LockLevel.TABLE, True)


def test_the_same_locks_without_noting_a_write() -> None:
    components = lock_components([TableWrite(database="d", table="t", kind=WriteKind.DELETE)])
    (component,) = unnoted(components)
    assert (component.type, component.operationType) == (LockType.EXCL_WRITE, DataOperationType.NO_TXN)
    assert components[0].operationType == DataOperationType.DELETE
