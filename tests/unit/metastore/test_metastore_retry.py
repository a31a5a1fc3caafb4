"""Each method that is repeated after an error is examined by itself."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.retry import is_idempotent, is_undone_by_deadlock
from airflow_hive_federation.metastore.translation import translate


def test_of_the_methods_that_do_not_begin_with_get_these_are_repeated() -> None:
    repeated = {name for name in METHODS if is_idempotent(name) and not name.startswith("get")}
    assert repeated == {
        "aliveSince",
        "check_lock",
        "fetch_partition_names_req",
        "find_columns_with_stats",
        "find_package",
        "flushCache",
        "heartbeat",
        "heartbeat_lock_materialization_rebuild",
        "heartbeat_txn_range",
        "isPartitionMarkedForEvent",
        "list_privileges",
        "list_roles",
        "partition_name_has_valid_characters",
        "partition_name_to_spec",
        "partition_name_to_vals",
        "setMetaConf",
        "setOption",
        "set_ugi",
        "show_compact",
        "show_locks",
        "translate_table_dryrun",
        "update_creation_metadata",
    }


def test_of_the_methods_that_begin_with_get_these_are_not() -> None:
    kept = {name for name in METHODS if not is_idempotent(name) and name.startswith("get")}
    assert kept == {"get_delegation_token", "get_lock_materialization_rebuild"}


@pytest.mark.parametrize(
    "message",
    [
        'Update of object with id "3[OID]" failed : ERROR: deadlock detected\n  Detail: Process 7 waits',
        "A lock could not be obtained due to a deadlock, cycle of locks and waiters is:",
        "Deadlock found when trying to get lock; try restarting transaction",
        "Exception rolling back to savepoint rollback_4135966118139",
        "Transaction (Process ID 52) was deadlocked on lock resources with another process",
    ],
)
def test_a_call_that_the_database_rolled_back_because_of_a_deadlock_is_repeated(message: str) -> None:
    assert _is_repeated("alter_partitions_req", message)
    # It stores its locks in a transaction of its own.
    assert not _is_repeated("lock", message)


def test_a_call_that_failed_otherwise_is_not_repeated() -> None:
    assert not _is_repeated("alter_partitions_req", "No such partition: deadlock=1")


def test_a_message_that_is_not_utf_8_is_read_all_the_same() -> None:
    error = translate(types.MetaException(message=b"Stra\xdfe"), "lock", "thrift://h:9083")  # type: ignore[arg-type]
    assert error.message == "lock at thrift://h:9083: Stra\ufffde"
    assert error.facts["server_message"] == "Stra\ufffde"


def _is_repeated(method: str, message: str) -> bool:
    fault = types.MetaException(message=message)
    try:
        raise translate(fault, method, "thrift://h:9083") from fault
    except MetastoreError as error:
        return is_undone_by_deadlock(method, error)
