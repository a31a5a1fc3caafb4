"""Requests of Hive's own gRPC service, in an order in which each finds what it needs.

``{db}`` is the database, which is another one on each side of the comparison.
"""

from __future__ import annotations

from typing import Any

Step = tuple[str, dict[str, Any]]

COLUMNS = [{"name": "id", "type": "int"}, {"name": "name", "type": "string", "comment": "Straße"}]
ORC = "org.apache.hadoop.hive.ql.io.orc.Orc"
STORAGE: dict[str, Any] = {
    "cols": COLUMNS,
    "input_format": f"{ORC}InputFormat",
    "output_format": f"{ORC}OutputFormat",
    "num_buckets": -1,
    "serde_info": {"serialization_lib": f"{ORC}Serde", "parameters": {"serialization.format": "1"}},
    "bucket_cols": ["id"],
    "sor_cols": [{"col": "id", "order": 1}],
    "skewed_info": {
        "skewed_col_names": ["id"],
        "skewed_col_values": [{"string_lists": ["7"]}],
    },
}
MOVED = {**STORAGE, "location": "file:{warehouse}/{db}"}
EXTERNAL = {"EXTERNAL": "TRUE", "é": "漢"}


def table(name: str, **more: Any) -> dict[str, Any]:
    return {
        "table_name": name,
        "db_name": "{db}",
        "table_type": "EXTERNAL_TABLE",
        "sd": STORAGE,
        "partition_keys": [{"name": "day", "type": "string"}],
        "parameters": EXTERNAL,
        **more,
    }


def partition(day: str, **more: Any) -> dict[str, Any]:
    return {
        "values": [day],
        "db_name": "{db}",
        "table_name": "t",
        "sd": STORAGE,
        "cat_name": "hive",
        **more,
    }


NAMES = {"db_name": "{db}", "tbl_name": "t"}
STATISTICS = {
    "stats_desc": {"is_tbl_level": True, "db_name": "{db}", "table_name": "t", "cat_name": "hive"},
    "stats_objs": [
        {
            "col_name": "id",
            "col_type": "int",
            "stats_data": {"long_stats": {"low_value": 1, "high_value": 9, "num_nulls": 2, "num_dvs": 5}},
        }
    ],
    "engine": "hive",
}

STEPS: list[Step] = [
    ("GetMetaConf", {"key": "metastore.partition.name.whitelist.pattern"}),
    ("GetConfigValue", {"name": "metastore.batch.retrieve.max", "default_value": "7"}),
    ("GetCatalogs", {}),
    ("GetCatalog", {"name": "hive"}),
    ("CreateCatalog", {"catalog": {"name": "{db}_cat", "location_uri": "{warehouse}/{db}_cat"}}),
    ("AlterCatalog", {"name": "{db}_cat", "new_cat": {"name": "{db}_cat", "description": "other",
                                                     "location_uri": "{warehouse}/{db}_cat"}}),
    ("GetCatalog", {"name": "{db}_cat"}),
    ("CreateDatabase", {"name": "{db}", "description": "é", "parameters": {"a": ""}, "owner_name": "o",
                        "owner_type": "PRINCIPAL_TYPE_USER", "type": "DATABASE_TYPE_NATIVE"}),
    ("GetDatabaseReq", {"name": "{db}"}),
    ("GetDatabaseReq", {"name": "nowhere"}),
    ("GetDatabases", {"pattern": "{db}"}),
    ("AlterDatabase", {"dbname": "{db}", "db": {"name": "{db}", "description": "changed"}}),
    ("GetDatabaseReq", {"name": "{db}"}),
    ("CreateTableReq", {"table": table("t")}),
    ("CreateTableReq", {"table": table("t")}),
    ("CreateTableReq", {"table": table("none", db_name="nowhere")}),
    ("GetTableReq", NAMES),
    ("GetTableReq", {"db_name": "{db}", "tbl_name": "nothing"}),
    ("GetAllTables", {"db_name": "{db}"}),
    ("GetTables", {"db_name": "{db}", "pattern": "*"}),
    ("GetTablesByType", {"db_name": "{db}", "pattern": "*", "table_type": "EXTERNAL_TABLE"}),
    ("GetTableMeta", {"db_patterns": "{db}", "tbl_patterns": "*"}),
    ("GetTableObjectsByNameReq", {"db_name": "{db}", "tbl_names": ["t"]}),
    ("GetTablesExt", {"catalog": "hive", "database": "{db}", "table_name_pattern": "*", "limit": 10}),
    ("GetTableNamesByFilter", {"dbname": "{db}", "filter": 'hive_filter_field_params__é = "漢"'}),
    ("GetFieldsReq", NAMES),
    ("GetSchemaReq", NAMES),
    ("AddPrimaryKey", {"primary_key_cols": [{"table_db": "{db}", "table_name": "t", "column_name": "id",
                                             "key_seq": 1, "pk_name": "pk_{db}"}]}),
    ("GetPrimaryKeys", NAMES),
    ("AddUniqueConstraint", {"unique_constraint_cols": [{"table_db": "{db}", "table_name": "t",
                                                         "column_name": "name", "key_seq": 1,
                                                         "uk_name": "uk_{db}"}]}),
    ("GetUniqueConstraints", {"cat_name": "hive", **NAMES}),
    ("GetAllTableConstraints", {"cat_name": "hive", **NAMES}),
    ("DropConstraint", {"dbname": "{db}", "tablename": "t", "constraint_name": "uk_{db}"}),
    ("GetForeignKeys", {"parent_db_name": "{db}", "parent_tbl_name": "t"}),
    ("GetNotNullConstraints", {"cat_name": "hive", **NAMES}),
    ("GetDefaultConstraints", {"cat_name": "hive", **NAMES}),
    ("GetCheckConstraints", {"cat_name": "hive", **NAMES}),
    ("AddPartition", partition("a")),
    ("AddPartition", partition("a")),
    ("AddPartitionWithEnvironmentContext", {"new_part": partition("b")}),
    ("AddPartitionsReq", {**NAMES, "parts": [partition("c"), partition("d")], "need_result": True}),
    ("AppendPartition", {**NAMES, "part_vals": ["e"]}),
    ("AppendPartitionByName", {**NAMES, "part_name": "day=f"}),
    ("GetPartitionReq", {"cat_name": "hive", **NAMES, "part_vals": ["a"]}),
    ("GetPartitionReq", {"cat_name": "hive", **NAMES, "part_vals": ["z"]}),
    ("GetPartitionByName", {**NAMES, "part_name": "day=c"}),
    ("GetPartitionWithAuth", {**NAMES, "part_vals": ["a"], "user_name": "u"}),
    ("GetPartitionsReq", {"cat_name": "hive", **NAMES, "max_parts": 3}),
    ("GetPartitionsWithAuth", {**NAMES, "max_parts": 2, "user_name": "u"}),
    ("GetPartitionsPSpec", {**NAMES, "max_parts": 3}),
    ("GetPartitionsPSWithAuthReq", {**NAMES, "part_vals": ["a"]}),
    ("GetPartitionNamesPSReq", {**NAMES, "part_values": [""]}),
    ("GetPartitionNamesReq", {**NAMES}),
    ("GetPartitionsByFilter", {**NAMES, "filter": 'day >= "d"'}),
    ("GetPartSpecsByFilter", {**NAMES, "filter": 'day >= "d"'}),
    ("GetNumPartitionsByFilter", {**NAMES, "filter": 'day >= "d"'}),
    ("GetPartitionsByNamesReq", {**NAMES, "names": ["day=a", "day=z"]}),
    ("GetPartitionValues", {**NAMES, "partition_keys": [{"name": "day", "type": "string"}]}),
    ("GetPartitionsWithSpecs", {"cat_name": "hive", **NAMES, "filter_spec": {}, "projection_spec": {}}),
    ("PartitionNameHasValidCharacters", {"part_vals": ["a"], "throw_exception": True}),
    ("PartitionNameToVals", {"part_name": "a=1/b=x%3Ay"}),
    ("PartitionNameToSpec", {"part_name": "a=1/b=x%3Ay"}),
    ("MarkPartitionForEvent", {**NAMES, "part_vals": {"day": "a"},
                               "event_type": "PARTITION_EVENT_TYPE_LOAD_DONE"}),
    ("IsPartitionMarkedForEvent", {**NAMES, "part_vals": {"day": "a"},
                                   "event_type": "PARTITION_EVENT_TYPE_LOAD_DONE"}),
    ("AlterPartition", {**NAMES, "new_part": partition("a", sd=MOVED, parameters={"x": "1"})}),
    ("AlterPartitionsReq", {"db_name": "{db}", "table_name": "t",
                            "partitions": [partition("b", sd=MOVED, parameters={"x": "2"})]}),
    ("RenamePartitionReq", {"cat_name": "hive", "db_name": "{db}", "table_name": "t", "part_vals": ["c"],
                            "new_part": partition("cc", sd=MOVED)}),
    ("GetPartitionsReq", {"cat_name": "hive", **NAMES}),
    ("AlterTableReq", {"db_name": "{db}", "table_name": "t", "table": table("t", sd=MOVED, parameters={
        **EXTERNAL, "comment": "changed"})}),
    ("GetTableReq", NAMES),
    ("UpdateTableColumnStatisticsReq", {"col_stats": [STATISTICS], "engine": "hive"}),
    ("GetTableColumnStatistics", {**NAMES, "col_name": "id"}),
    ("GetTableStatisticsReq", {**NAMES, "col_names": ["id"], "engine": "hive"}),
    ("GetPartitionsStatisticsReq", {**NAMES, "col_names": ["id"], "part_names": ["day=a"], "engine": "hive"}),
    ("GetAggrStatsFor", {**NAMES, "col_names": ["id"], "part_names": ["day=a"], "engine": "hive"}),
    ("DeleteTableColumnStatistics", {**NAMES, "col_name": "id", "engine": "hive"}),
    ("DropPartition", {**NAMES, "part_vals": ["d"], "delete_data": True}),
    ("DropPartitionByName", {**NAMES, "part_name": "day=e", "delete_data": True}),
    ("DropPartitionsReq", {**NAMES, "parts": {"names": {"string_lists": ["day=f"]}}, "if_exists": True}),
    ("GetPartitionNamesReq", {**NAMES}),
    ("TruncateTable", {"db_name": "{db}", "table_name": "t"}),
    ("CreateFunction", {"function_name": "f", "db_name": "{db}", "class_name": "org.F", "owner_name": "o",
                        "owner_type": "PRINCIPAL_TYPE_USER", "function_type": "FUNCTION_TYPE_JAVA",
                        "resource_urises": [{"resource_type": "RESOURCE_TYPE_JAR", "uri": "file:/f.jar"}]}),
    ("GetFunction", {"db_name": "{db}", "func_name": "f"}),
    ("GetFunctions", {"db_name": "{db}", "pattern": "*"}),
    ("DropFunction", {"db_name": "{db}", "func_name": "f"}),
    ("GetFunction", {"db_name": "{db}", "func_name": "f"}),
    ("CreateRole", {"role_name": "{db}_role", "owner_name": "o"}),
    ("GetRoleNames", {}),
    ("DropRole", {"role_name": "{db}_role"}),
    ("OpenTxns", {"num_txns": 1, "user": "u", "hostname": "h"}),
    ("GetOpenTxnsReq", {"exclude_txn_types": ["TXN_TYPE_READONLY"]}),
    ("Heartbeat", {"txnid": 999999999}),
    ("CommitTxn", {"txnid": 999999999}),
    ("AbortTxn", {"txnid": 999999999}),
    ("CheckLock", {"lockid": 999999999}),
    ("Unlock", {"lockid": 999999999}),
    ("ShowLocks", {"dbname": "{db}"}),
    ("ShowCompact", {}),
    ("GetNextNotification", {"last_event": 0, "max_events": 1}),
    ("GetNotificationEventsCount", {"from_event_id": 0, "db_name": "nowhere"}),
    ("CreateDataConnector", {"name": "{db}_c", "type": "mysql", "url": "jdbc:mysql://h/d", "owner_name": "o",
                             "owner_type": "PRINCIPAL_TYPE_USER"}),
    ("GetDataConnectorReq", {"connector_name": "{db}_c"}),
    ("DropDataConnector", {"name": "{db}_c"}),
    ("CreateResourcePlan", {"resource_plan": {"name": "{db}_plan", "query_parallelism": 3}}),
    ("GetResourcePlan", {"resource_plan_name": "{db}_plan"}),
    ("DropResourcePlan", {"resource_plan_name": "{db}_plan"}),
    ("CreateISchema", {"schema_type": "SCHEMA_TYPE_AVRO", "name": "{db}_s", "cat_name": "hive",
                       "db_name": "{db}",
                       "compatibility": "SCHEMA_COMPATIBILITY_NONE",
                       "validation_level": "SCHEMA_VALIDATION_ALL", "can_evolve": True}),
    ("GetISchema", {"cat_name": "hive", "db_name": "{db}", "schema_name": "{db}_s"}),
    ("DropISchema", {"cat_name": "hive", "db_name": "{db}", "schema_name": "{db}_s"}),
    ("CreateStoredProcedure", {"name": "p", "db_name": "{db}", "cat_name": "hive", "owner_name": "o",
                               "source": "SELECT 1"}),
    ("GetStoredProcedure", {"cat_name": "hive", "db_name": "{db}", "proc_name": "p"}),
    ("GetAllStoredProcedures", {"cat_name": "hive", "db_name": "{db}"}),
    ("DropStoredProcedure", {"cat_name": "hive", "db_name": "{db}", "proc_name": "p"}),
    ("AddPackage", {"cat_name": "hive", "db_name": "{db}", "package_name": "p", "owner_name": "o",
                    "header": "h", "body": "b"}),
    ("FindPackage", {"cat_name": "hive", "db_name": "{db}", "package_name": "p"}),
    ("DropPackage", {"cat_name": "hive", "db_name": "{db}", "package_name": "p"}),
    ("DropTableWithEnvironmentContext", {"dbname": "{db}", "name": "t", "delete_data": True}),
    ("DropTable", {"dbname": "{db}", "name": "t", "delete_data": True}),
    ("DropDatabaseReq", {"name": "{db}", "delete_data": True, "cascade": True}),
    ("DropCatalog", {"name": "{db}_cat"}),
]  # fmt: skip

#: Values of fields by their names, for the rpcs that no step above is about.
FILLED = {
    **dict.fromkeys(("db_name", "dbname", "db", "db_names", "source_db", "dest_db"), "{db}"),
    **dict.fromkeys(("tbl_name", "table_name", "tablename", "table"), "nothing"),
    "name": "{db}_nothing",
    "cat_name": "hive",
}
#: Fields with a number that is another one on each side.
NUMBERED = frozenset({"txnid", "lockid", "txn_id", "id"})
