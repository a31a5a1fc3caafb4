"""Requests of Hive's own gRPC service: constraints, privileges, transactions, compactions, plans, schemas.

``{db}`` is the database; ``{txn}`` and the like are numbers of :data:`CAPTURED`. Each side of the comparison
has its own.
"""

from __future__ import annotations

from typing import Any

from tests.support.hives_rpcs import COLUMNS, MOVED, NAMES, STATISTICS, STORAGE, Step, partition, table

#: Names for numbers of answers, by the rpc that answers them, with the number's field.
CAPTURED = {
    "OpenTxns": ("txn", "txn_ids"),
    "Lock": ("lock", "lockid"),
    "Compact2": ("compaction", "id"),
    "FindNextCompact": ("compaction", "id"),
    "ScheduledQueryPoll": ("execution", "execution_id"),
    "GetTableReq": ("table", "id"),
}

ACID = {"db_name": "{db}", "table_name": "a"}
COMPACTED = {"dbname": "{db}", "tablename": "a"}
MAJOR = {"type": "COMPACTION_TYPE_MAJOR"}
ENTRY = {"id": "{compaction}", **COMPACTED, **MAJOR, "state": "i", "worker_id": "w"}
METRIC = {"type": "COMPACTION_METRICS_METRIC_TYPE_NUM_DELTAS"}
WRITE_IDS = "{txn}${db}.a:1:9223372036854775807::"
VIEW = {"cat_name": "hive", "db_name": "{db}", "tbl_name": "m"}
CREATION: dict[str, Any] = {
    **VIEW,
    "tables_useds": ["{db}.a"],
    "valid_txn_list": WRITE_IDS,
    "source_tables": [{"table": {"db_name": "{db}", "table_name": "a", "cat_name": "hive"}}],
}
USER = {"principal_name": "{db}_u", "principal_type": "PRINCIPAL_TYPE_USER"}
GRANTOR = {"grantor": "g", "grantor_type": "PRINCIPAL_TYPE_USER"}
OBJECT = {
    "object_type": "HIVE_OBJECT_TYPE_TABLE", "db_name": "{db}", "object_name": "u", "cat_name": "hive"
}  # fmt: skip
PRIVILEGES = {
    "privileges": [
        {"hive_object": OBJECT, **USER, "grant_info": {"privilege": "SELECT", **GRANTOR}, "authorizer": "SQL"}
    ]
}
IN_U = {"cat_name": "hive", "table_db": "{db}", "table_name": "u"}
PARTITION_STATISTICS = {
    **STATISTICS,
    "stats_desc": {
        "db_name": "{db}", "table_name": "t", "part_name": "day=g", "cat_name": "hive",
    },
}  # fmt: skip
PART = {**NAMES, "part_name": "day=g", "col_name": "id"}
ENVIRONMENT = {"environment_context": {"properties": {"é": "1"}}}
EXCHANGED = {
    "source_db": "{db}", "source_table_name": "t", "dest_db": "{db}", "dest_table_name": "u",
}  # fmt: skip
PLAN = {"resource_plan_name": "{db}_plan", "ns": "{db}"}
POOL = {**PLAN, "pool_path": "p", "alloc_fraction": 0.25, "query_parallelism": 1}
TRIGGER = {**PLAN, "trigger_name": "r", "action_expression": "KILL"}
MAPPING = {**PLAN, "entity_type": "USER", "entity_name": "u"}
SCHEMA = {"cat_name": "hive", "db_name": "{db}", "schema_name": "{db}_s"}
SCHEMA_FIELDS = {
    "schema_type": "SCHEMA_TYPE_AVRO",
    "name": "{db}_s",
    "cat_name": "hive",
    "db_name": "{db}",
    "compatibility": "SCHEMA_COMPATIBILITY_NONE",
    "validation_level": "SCHEMA_VALIDATION_ALL",
    "can_evolve": True,
}
VERSION = {"schema": SCHEMA, "version": 1}
QUERY_KEY = {"schedule_name": "q", "cluster_namespace": "{db}"}
QUERY = {
    "schedule_key": QUERY_KEY,
    "enabled": True,
    "schedule": "0 0 0 1 1 ? 2090",
    "user": "u",
    "query": "SELECT 1",
}
MAINTAIN = "SCHEDULED_QUERY_MAINTENANCE_REQUEST_TYPE_"
TOKEN = {"token_identifier": "{db}_token"}
FILES = {"files_addeds": ["file:/f"], "files_added_checksums": ["1"]}
WRITTEN = {"txn_id": "{txn}", "write_id": 1, "db": "{db}", "table": "a", "file_info": FILES}
LOCKED = {
    "type": "LOCK_TYPE_SHAREDWRITE", "level": "LOCK_LEVEL_TABLE", **COMPACTED, "is_transactional": True,
    "operation_type": "DATA_OPERATION_TYPE_UPDATE",
}  # fmt: skip
PLAIN = {
    key: value for key, value in STORAGE.items() if key not in {"bucket_cols", "sor_cols", "skewed_info"}
}
OPEN: Step = ("OpenTxns", {"num_txns": 1, "user": "u", "hostname": "h"})

OTHER_STEPS: list[Step] = [
    ("CreateDatabase", {"name": "{db}"}),
    ("GetAllDatabases", {}),
    ("CreateTableReq", {"table": table("t")}),
    ("CreateTableReq", {"table": table("u")}),
    ("CreateTableReq", {
        "table": table("a", table_type="MANAGED_TABLE", partition_keys=[], sd=PLAIN, parameters={
            "transactional": "true", "transactional_properties": "default"}),
        "processor_capabilities": ["HIVEFULLACIDREAD", "HIVEFULLACIDWRITE", "HIVEMANAGEDINSERTWRITE"],
        "processor_identifier": "judge"}),
    ("TranslateTableDryrun", {"table": table("dry")}),
    ("GetMetastoreDbUuid", {}),
    ("FlushCache", {}),
    # Types, connectors, constraints.
    ("CreateType", {"name": "{db}_type", "fields": COLUMNS}),
    ("GetType", {"name": "{db}_type"}),
    ("GetTypeAll", {"name": "{db}_type"}),
    ("DropType", {"type": "{db}_type"}),
    ("CreateDataConnector", {"name": "{db}_k", "type": "mysql", "url": "jdbc:mysql://h/d"}),
    ("AlterDataConnector", {"name": "{db}_k", "connector": {"name": "{db}_k", "type": "mysql",
                                                            "url": "jdbc:mysql://other/d"}}),
    ("GetDataConnectors", {}),
    ("DropDataConnector", {"name": "{db}_k"}),
    ("AddPrimaryKey", {"primary_key_cols": [{"table_db": "{db}", "table_name": "t", "column_name": "id",
                                             "key_seq": 1, "pk_name": "pk_{db}"}]}),
    ("AddForeignKey", {"foreign_key_cols": [{
        "pktable_db": "{db}", "pktable_name": "t", "pkcolumn_name": "id", "fktable_db": "{db}",
        "fktable_name": "u", "fkcolumn_name": "id", "key_seq": 1, "fk_name": "fk_{db}",
            "pk_name": "pk_{db}"}]}),
    ("GetForeignKeys", {"parent_db_name": "{db}", "parent_tbl_name": "t"}),
    ("AddNotNullConstraint", {"not_null_constraint_cols": [{**IN_U, "column_name": "id",
        "nn_name": "nn_{db}"}]}),
    ("AddDefaultConstraint", {"default_constraint_cols": [{**IN_U, "column_name": "id", "default_value": "7",
                                                           "dc_name": "dc_{db}"}]}),
    ("AddCheckConstraint", {"check_constraint_cols": [{**IN_U, "column_name": "id",
        "check_expression": "id > 0",
                                                       "dc_name": "cc_{db}"}]}),
    # Partitions and their statistics.
    ("AddPartitionsPSpec", {"new_parts": [{"db_name": "{db}", "table_name": "t", "cat_name": "hive",
                                           "partition_list": {"partitions": [partition("p")]}}]}),
    *(("AppendPartitionByName", {**NAMES, "part_name": f"day={day}"}) for day in "gij"),
    ("AppendPartitionWithEnvironmentContext", {**NAMES, "part_vals": ["k"], **ENVIRONMENT}),
    ("AppendPartitionByNameWithEnvironmentContext", {**NAMES, "part_name": "day=l", **ENVIRONMENT}),
    ("AlterPartitionWithEnvironmentContext", {**NAMES, "new_part": partition("g", sd=MOVED,
        parameters={"x": "3"}),
                                              **ENVIRONMENT}),
    ("DropPartitionWithEnvironmentContext", {**NAMES, "part_vals": ["k"], "delete_data": True,
        **ENVIRONMENT}),
    ("DropPartitionByNameWithEnvironmentContext", {**NAMES, "part_name": "day=l", "delete_data": True,
                                                   **ENVIRONMENT}),
    ("ExchangePartition", {**EXCHANGED, "partition_specs": {"day": "i"}}),
    ("ExchangePartitions", {**EXCHANGED, "partition_specs": {"day": "j"}}),
    ("GetPartitionsByExpr", {**NAMES, "max_parts": -1}),
    ("GetPartitionsSpecByExpr", {**NAMES, "max_parts": -1}),
    ("UpdatePartitionColumnStatisticsReq", {"col_stats": [PARTITION_STATISTICS], "engine": "hive"}),
    ("GetPartitionColumnStatistics", PART),
    ("SetAggrStatsFor", {"col_stats": [PARTITION_STATISTICS], "engine": "hive"}),
    ("DeletePartitionColumnStatistics", {**PART, "engine": "hive"}),
    ("CreateFunction", {"function_name": "f", "db_name": "{db}", "class_name": "org.F",
                        "owner_type": "PRINCIPAL_TYPE_USER", "function_type": "FUNCTION_TYPE_JAVA"}),
    ("AlterFunction", {"db_name": "{db}", "func_name": "f", "new_func": {
        "function_name": "f", "db_name": "{db}", "class_name": "org.G", "owner_type": "PRINCIPAL_TYPE_USER",
        "function_type": "FUNCTION_TYPE_JAVA"}}),
    ("GetAllFunctions", {}),
    ("DropFunction", {"db_name": "{db}", "func_name": "f"}),
    # Roles, privileges, tokens.
    ("CreateRole", {"role_name": "{db}_role", "owner_name": "o"}),
    ("GrantRevokeRole", {"request_type": "GRANT_REVOKE_TYPE_GRANT", "role_name": "{db}_role", **USER,
        **GRANTOR}),
    ("ListRoles", USER),
    ("GetPrincipalsInRole", {"role_name": "{db}_role"}),
    ("GetRoleGrantsForPrincipal", USER),
    ("GrantRevokePrivileges", {"request_type": "GRANT_REVOKE_TYPE_GRANT", "privileges": PRIVILEGES}),
    ("ListPrivileges", {**USER, "hive_object": OBJECT}),
    ("GetPrivilegeSet", {"hive_object": OBJECT, "user_name": "{db}_u"}),
    ("RefreshPrivileges", {"obj_to_refresh": OBJECT, "authorizer": "SQL", "grant_request": {
        "request_type": "GRANT_REVOKE_TYPE_GRANT", "privileges": {}}}),
    ("DropRole", {"role_name": "{db}_role"}),
    ("GetDelegationToken", {"token_owner": "o", "renewer_kerberos_principal_name": "r"}),
    ("RenewDelegationToken", {"token_str_form": "t"}),
    ("CancelDelegationToken", {"token_str_form": "t"}),
    ("AddToken", {**TOKEN, "delegation_token": "t"}),
    ("GetAllTokenIdentifiers", {}),
    ("RemoveToken", TOKEN),
    ("AddMasterKey", {"key": "{db}_key"}),
    ("UpdateMasterKey", {"seq_number": 1, "key": "{db}_changed"}),
    ("GetMasterKeys", {}),
    ("RemoveMasterKey", {"key_seq": 1}),
    # Transactions.
    OPEN,
    ("GetOpenTxnsInfo", {}),
    ("AllocateTableWriteIds", {**ACID, "txn_ids": ["{txn}"]}),
    ("GetValidWriteIds", {"full_table_names": ["{db}.a"]}),
    ("GetMaxAllocatedTableWriteId", ACID),
    ("Lock", {"components": [LOCKED], "txnid": "{txn}", "user": "u", "hostname": "h"}),
    ("CheckLock", {"lockid": "{lock}", "txnid": "{txn}"}),
    ("AddDynamicPartitions", {"txnid": "{txn}", "writeid": 1, **COMPACTED, "partitionnames": ["day=a"],
                              "operation_type": "DATA_OPERATION_TYPE_UPDATE"}),
    ("Heartbeat", {"lockid": "{lock}", "txnid": "{txn}"}),
    ("HeartbeatTxnRange", {"min": "{txn}", "max": "{txn}"}),
    ("AddWriteNotificationLog", WRITTEN),
    ("AddWriteNotificationLogInBatch", {"catalog": "hive", "db": "{db}", "table": "a",
        "request_lists": [WRITTEN]}),
    ("GetAllWriteEventInfo", {"txn_id": "{txn}"}),
    ("GetLatestTxnidInConflict", {"txn_id": "{txn}"}),
    ("GetTableReq", {"db_name": "{db}", "tbl_name": "a"}),
    ("UpdateTransactionStatistics", {"table_id": "{table}", "inserted_count": 3}),
    ("CommitTxn", {"txnid": "{txn}"}),
    OPEN,
    ("GetLockMaterializationRebuild", {"db_name": "{db}", "table_name": "m", "txn_id": "{txn}"}),
    ("HeartbeatLockMaterializationRebuild", {"db_name": "{db}", "table_name": "m", "txn_id": "{txn}"}),
    ("AbortTxns", {"txn_ids": ["{txn}"]}),
    OPEN,
    ("AbortTxn", {"txnid": "{txn}"}),
    ("Lock", {"components": [{"type": "LOCK_TYPE_SHAREDREAD", "level": "LOCK_LEVEL_TABLE", "dbname": "{db}",
                              "tablename": "t", "operation_type": "DATA_OPERATION_TYPE_SELECT"}],
              "user": "u", "hostname": "h"}),
    ("Unlock", {"lockid": "{lock}"}),
    ("SeedWriteId", {"db_name": "{db}", "table_name": "seeded", "seed_write_id": 5}),
    ("SeedTxnId", {"seed_txn_id": 1}),
    # Materialized views.
    ("CreateTableReq", {"table": table("m", table_type="MATERIALIZED_VIEW", rewrite_enabled=True, sd=PLAIN,
                                       partition_keys=[], parameters={}, creation_metadata=CREATION,
                                       view_original_text="SELECT 1", view_expanded_text="SELECT 1")}),
    ("GetAllMaterializedViewObjectsForRewriting", {}),
    ("GetMaterializationInvalidationInfo", {"creation_metadata": CREATION,
                                            "valid_txn_list": "{txn}:9223372036854775807::"}),
    ("UpdateCreationMetadata", {"cat_name": "hive", "dbname": "{db}", "tbl_name": "m",
                                "creation_metadata": CREATION}),
    # Compactions.
    ("Compact2", {**COMPACTED, **MAJOR, "runas": "r"}),
    ("FindNextCompact2", {"worker_id": "w", "worker_version": "4"}),
    ("FindColumnsWithStats", ENTRY),
    ("SetHadoopJobid", {"job_id": "j", "cq_id": "{compaction}"}),
    ("MarkCompacted", ENTRY),
    ("MarkFailed", {**ENTRY, "error_message": "é"}),
    ("Compact", {**COMPACTED, **MAJOR}),
    ("FindNextCompact", {"worker_id": "w"}),
    ("MarkRefused", ENTRY),
    ("MarkCleaned", ENTRY),
    ("GetLatestCommittedCompactionInfo", COMPACTED),
    ("UpdateCompactionMetricsData", {"dbname": "{db}", "tblname": "a", **METRIC, "metricvalue": 4,
        "version": 1,
                                     "threshold": 1}),
    ("RemoveCompactionMetricsData", {"db_name": "{db}", "tbl_name": "a", **METRIC}),
    # Events and files.
    ("FireListenerEvent", {"successful": True, "data": {"insert_data": FILES}, "db_name": "{db}",
                           "table_name": "u", "cat_name": "hive"}),
    ("GetCurrentNotificationEventId", {}),
    ("CmRecycle", {"data_path": "file:{warehouse}/nothing", "purge": True}),
    ("GetFileMetadata", {"file_ids": [1]}),
    ("GetFileMetadataByExpr", {"file_ids": [1]}),
    ("PutFileMetadata", {"file_ids": [1], "metadata": ["AA=="]}),
    ("ClearFileMetadata", {"file_ids": [1]}),
    ("CacheFileMetadata", NAMES),
    # Resource plans.
    ("CreateResourcePlan", {"resource_plan": {"name": "{db}_plan", "ns": "{db}", "query_parallelism": 3}}),
    ("CreateWmPool", {"pool": POOL}),
    ("AlterWmPool", {"pool": {**PLAN, "pool_path": "p", "query_parallelism": 2}, "pool_path": "p"}),
    ("CreateWmTrigger", {"trigger": {**TRIGGER, "trigger_expression": "BYTES_READ > 10"}}),
    ("AlterWmTrigger", {"trigger": {**TRIGGER, "trigger_expression": "BYTES_READ > 20"}}),
    ("GetTriggersForResourcePlan", PLAN),
    ("CreateOrDropWmTriggerToPoolMapping", {**PLAN, "trigger_name": "r", "pool_path": "p"}),
    ("CreateOrUpdateWmMapping", {"mapping": {**MAPPING, "pool_path": "p", "ordering": 1}}),
    ("GetResourcePlan", PLAN),
    ("ValidateResourcePlan", PLAN),
    ("DropWmMapping", {"mapping": MAPPING}),
    ("CreateOrDropWmTriggerToPoolMapping", {**PLAN, "trigger_name": "r", "pool_path": "p", "drop": True}),
    ("DropWmTrigger", {**PLAN, "trigger_name": "r"}),
    ("DropWmPool", {**PLAN, "pool_path": "p"}),
    ("AlterResourcePlan", {**PLAN, "resource_plan": {"ns": "{db}", "status": "WMRESOURCE_PLAN_STATUS_ACTIVE"},
                           "is_enable_and_activate": True}),
    ("GetActiveResourcePlan", {"ns": "{db}"}),
    ("GetAllResourcePlans", {"ns": "{db}"}),
    ("AlterResourcePlan", {**PLAN, "resource_plan": {"ns": "{db}",
        "status": "WMRESOURCE_PLAN_STATUS_DISABLED"},
                           "is_force_deactivate": True}),
    ("DropResourcePlan", PLAN),
    # Schemas of the registry.
    ("CreateISchema", SCHEMA_FIELDS),
    ("AlterISchema", {"name": SCHEMA, "new_schema": {**SCHEMA_FIELDS, "description": "é"}}),
    ("AddSchemaVersion", {**VERSION, "cols": COLUMNS, "state": "SCHEMA_VERSION_STATE_INITIATED", "name": "v",
                          "schema_text": "x", "fingerprint": "y"}),
    ("GetSchemaVersion", VERSION),
    ("GetSchemaLatestVersion", SCHEMA),
    ("GetSchemaAllVersions", SCHEMA),
    ("GetSchemasByCols", {"col_name": "id"}),
    ("AddSerde", {"name": "{db}_serde", "serialization_lib": "org.S", "parameters": {"a": "1"}}),
    ("GetSerde", {"serde_name": "{db}_serde"}),
    ("MapSchemaVersionToSerde", {"schema_version": VERSION, "serde_name": "{db}_serde"}),
    ("SetSchemaVersionState", {"schema_version": VERSION, "state": "SCHEMA_VERSION_STATE_REVIEWED"}),
    ("DropSchemaVersion", VERSION),
    ("DropISchema", SCHEMA),
    # Queries by schedule, statistics of runs, packages.
    ("ScheduledQueryMaintenance", {"type": f"{MAINTAIN}CREATE", "scheduled_query": QUERY}),
    ("GetScheduledQuery", QUERY_KEY),
    # From 1970 on.
    ("ScheduledQueryMaintenance", {"type": f"{MAINTAIN}ALTER", "scheduled_query": {**QUERY,
        "next_execution": 1}}),
    ("ScheduledQueryPoll", {"cluster_namespace": "{db}"}),
    ("ScheduledQueryProgress", {"scheduled_execution_id": "{execution}", "state": "QUERY_STATE_FINISHED",
                                "executor_query_id": "e"}),
    ("AddReplicationMetrics", {"replication_metric_lists": [{
        "scheduled_execution_id": "{execution}", "policy": "{db}", "dump_execution_id": 1, "metadata": "m",
        "progress": "p", "message_format": "json-1.0"}]}),
    ("GetReplicationMetrics", {"policy": "{db}"}),
    ("ScheduledQueryMaintenance", {"type": f"{MAINTAIN}DROP", "scheduled_query": QUERY}),
    ("AddRuntimeStats", {"weight": 1, "payload": "YWJj"}),
    ("GetRuntimeStats", {"max_weight": 100, "max_create_time": -1}),
    ("GetAllPackages", {"cat_name": "hive", "db_name": "{db}"}),
    ("DropTable", {"dbname": "{db}", "name": "u", "delete_data": True}),
    ("DropDatabaseReq", {"name": "{db}", "catalog_name": "hive", "delete_data": True, "cascade": True}),
]  # fmt: skip

#: Reads by Thrift that show the effect of a change, by a pattern of the rpcs; the first match counts.
SHOWN: list[tuple[str, list[Step]]] = [
    ("Catalog", [("GetCatalog", {"name": "{db}_cat"})]),
    ("Database", [("GetDatabaseReq", {"name": "{db}", "catalog_name": "hive"})]),
    ("DataConnector", [("GetDataConnectorReq", {"connector_name": name}) for name in ("{db}_c", "{db}_k")]),
    ("Type", [("GetType", {"name": "{db}_type"})]),
    ("Constraint|Key$", [
        ("GetAllTableConstraints", {"cat_name": "hive", "db_name": "{db}",
            "tbl_name": name}) for name in "tu"]),
    ("MasterKey", [("GetMasterKeys", {})]),
    ("Token", [("GetAllTokenIdentifiers", {})]),
    ("AggrStats|ColumnStatistics", [
        ("GetTableStatisticsReq", {**NAMES, "col_names": ["id"], "engine": "hive"}),
        ("GetPartitionsStatisticsReq", {**NAMES, "col_names": ["id"], "part_names": ["day=a", "day=g"],
                                        "engine": "hive"})]),
    ("Function", [("GetFunction", {"db_name": "{db}", "func_name": "f"})]),
    ("Role|Privilege", [("ListRoles", USER), ("ListPrivileges", {**USER, "hive_object": OBJECT}),
                        ("GetRoleNames", {})]),
    ("WriteNotification|FireListener", [("GetAllWriteEventInfo", {"txn_id": "{txn}"}),
                                        ("GetCurrentNotificationEventId", {})]),
    ("WriteId|Txn|[Ll]ock|Heartbeat|DynamicPartitions", [
        ("GetOpenTxnsInfo", {}), ("ShowLocks", {"dbname": "{db}"}),
        ("GetValidWriteIds", {"full_table_names": ["{db}.a", "{db}.seeded"]})]),
    ("Compact|Mark(?!Part)|HadoopJob", [("ShowCompact", {}), ("GetLatestCommittedCompactionInfo",
        COMPACTED)]),
    ("ResourcePlan|Wm", [("GetResourcePlan", {"resource_plan_name": "{db}_plan", **ns}) for ns in ({},
        {"ns": "{db}"})]),
    ("AddSerde", [("GetSerde", {"serde_name": "{db}_serde"})]),
    ("Schema", [("GetISchema", SCHEMA), ("GetSchemaAllVersions", SCHEMA)]),
    ("ScheduledQuery", [("GetScheduledQuery", QUERY_KEY)]),
    ("ReplicationMetrics", [("GetReplicationMetrics", {"policy": "{db}"})]),
    ("RuntimeStats", [("GetRuntimeStats", {"max_weight": 100, "max_create_time": -1})]),
    ("StoredProcedure", [("GetStoredProcedure", {"cat_name": "hive", "db_name": "{db}", "proc_name": "p"})]),
    ("Package", [("FindPackage", {"cat_name": "hive", "db_name": "{db}", "package_name": "p"})]),
    ("MarkPartition", [("IsPartitionMarkedForEvent", {
        **NAMES, "part_vals": {"day": "a"}, "event_type": "PARTITION_EVENT_TYPE_LOAD_DONE"})]),
    ("FileMetadata", [("GetFileMetadata", {"file_ids": [1]})]),
    ("Partition|Exchange|Table|CreationMetadata|TransactionStatistics|FlushCache|CmRecycle", [
        ("GetTableObjectsByNameReq", {"db_name": "{db}", "tbl_names": ["t", "u", "a", "m"]}),
        ("GetPartitionsReq", {"cat_name": "hive", **NAMES}),
        ("GetPartitionsReq", {"cat_name": "hive", "db_name": "{db}", "tbl_name": "u"})]),
]  # fmt: skip
