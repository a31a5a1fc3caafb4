"""Each method that is repeated after an error is examined by itself."""

from __future__ import annotations

from airflow_hive_federation.metastore.idl.service import METHODS
from airflow_hive_federation.metastore.retry import is_idempotent


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
