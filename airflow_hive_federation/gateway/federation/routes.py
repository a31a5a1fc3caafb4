"""Lists the route of each Hive method in a gateway with several metastores.

The gateway refuses methods that are not in these lists. ``test_federation_routes.py`` compares the lists with
the interface definition, and with the fields where :mod:`..names` finds databases and tables.
"""

from __future__ import annotations

from enum import StrEnum


class Route(StrEnum):
    """The rule that finds the metastore for a call."""

    #: The single owner of all databases and tables of the call; the primary metastore if it names none.
    NAMED = "named"
    #: As ``NAMED``, for local databases only: the gateway does not change a remote database's definition.
    DEFINES_DATABASE = "defines_database"
    #: As ``NAMED``, and only if the call's transaction also belongs to the owner.
    IN_TRANSACTION = "in_transaction"
    #: The metastore whose transactions the gateway's clients get; only readers' calls if it is read-only.
    TRANSACTION = "transaction"
    #: The metastore that gave the lock; the lock's id shows which one.
    LOCK_ID = "lock_id"
    LOCK = "lock"
    #: As ``NAMED``; the ids of locks and transactions in the answer show their metastore, or are left out.
    LOCKS = "locks"
    WRITE_IDS = "write_ids"
    MIN_HISTORY = "min_history"
    #: The owners of the tables, each for its own tables; the gateway merges their answers.
    TABLES = "tables"
    #: Every metastore; the gateway merges their answers.
    ALL = "all"
    #: As ``NAMED``, plus other metastores' single tables that have a local name in the database.
    LISTING = "listing"
    #: The primary metastore: catalogs, roles, tokens and all else that belongs to no database.
    PRIMARY = "primary"
    #: The primary metastore; the gateway leaves out of its answer what holds for that metastore alone.
    SETTING = "setting"
    #: None: the call names objects by ids that each metastore may have given.
    UNKNOWN = "unknown"


_NAMED = """
    add_check_constraint add_default_constraint add_foreign_key add_not_null_constraint add_package
    add_partition add_partition_with_environment_context add_partitions add_partitions_pspec
    add_partitions_req add_primary_key add_schema_version add_unique_constraint alter_function alter_ischema
    alter_partition alter_partition_with_environment_context alter_partitions alter_partitions_req
    alter_partitions_with_environment_context alter_table alter_table_req alter_table_with_cascade
    alter_table_with_environment_context append_partition append_partition_by_name
    append_partition_by_name_with_environment_context append_partition_req
    append_partition_with_environment_context cache_file_metadata compact compact2 create_function
    create_ischema create_stored_procedure create_table create_table_req create_table_with_constraints
    create_table_with_environment_context delete_column_statistics_req delete_partition_column_statistics
    delete_table_column_statistics drop_constraint drop_function drop_ischema drop_package drop_partition
    drop_partition_by_name drop_partition_by_name_with_environment_context drop_partition_req
    drop_partition_with_environment_context drop_partitions_req drop_schema_version drop_stored_procedure
    drop_table drop_table_req drop_table_with_environment_context exchange_partition exchange_partitions
    fetch_partition_names_req find_columns_with_stats find_package fire_listener_event get_aggr_stats_for
    get_all_packages get_all_stored_procedures get_all_table_constraints get_all_write_event_info
    get_check_constraints get_database get_database_req get_default_constraints get_fields get_fields_req
    get_fields_with_environment_context get_foreign_keys get_function get_functions get_functions_req
    get_ischema get_latest_committed_compaction_info get_materialized_views_for_rewriting
    get_max_allocated_table_write_id get_next_notification get_not_null_constraints
    get_notification_events_count get_num_partitions_by_filter get_part_specs_by_filter get_partition
    get_partition_by_name get_partition_column_statistics get_partition_names get_partition_names_ps
    get_partition_names_ps_req get_partition_names_req get_partition_req get_partition_values
    get_partition_with_auth get_partitions get_partitions_by_expr get_partitions_by_filter
    get_partitions_by_filter_req get_partitions_by_names get_partitions_by_names_req get_partitions_ps
    get_partitions_ps_with_auth get_partitions_ps_with_auth_req get_partitions_pspec get_partitions_req
    get_partitions_spec_by_expr get_partitions_statistics_req get_partitions_with_auth
    get_partitions_with_specs get_primary_keys get_privilege_set get_schema get_schema_all_versions
    get_schema_latest_version get_schema_req get_schema_version get_schema_with_environment_context
    get_stored_procedure get_table get_table_column_statistics get_table_req
    get_table_statistics_req get_unique_constraints grant_privileges grant_revoke_privileges
    isPartitionMarkedForEvent list_privileges map_schema_version_to_serde markPartitionForEvent mark_cleaned
    mark_compacted mark_failed mark_refused refresh_privileges remove_compaction_metrics_data
    rename_partition rename_partition_req repl_tbl_writeid_state revoke_privileges seed_write_id
    set_aggr_stats_for set_schema_version_state show_compact submit_for_cleanup
    translate_table_dryrun truncate_table truncate_table_req update_compaction_metrics_data
    update_compactor_state update_partition_column_statistics update_partition_column_statistics_req
    update_table_column_statistics update_table_column_statistics_req
"""
_DEFINES_DATABASE = """
    alter_database alter_database_req create_database create_database_req drop_database drop_database_req
"""
_IN_TRANSACTION = """
    add_dynamic_partitions add_write_notification_log add_write_notification_log_in_batch
    allocate_table_write_ids commit_txn get_lock_materialization_rebuild
    get_materialization_invalidation_info heartbeat_lock_materialization_rebuild update_creation_metadata
"""
_TRANSACTION = """
    abort_txn abort_txns get_latest_txnid_in_conflict get_open_txns get_open_txns_info get_open_txns_req
    heartbeat_txn_range open_txns update_transaction_statistics
"""
_PRIMARY = """
    add_master_key add_replication_metrics add_runtime_stats add_serde add_token
    aliveSince alter_catalog alter_dataconnector_req alter_resource_plan alter_wm_pool alter_wm_trigger
    cancel_delegation_token clear_file_metadata cm_recycle create_catalog create_dataconnector_req
    create_or_drop_wm_trigger_to_pool_mapping create_or_update_wm_mapping create_resource_plan create_role
    create_type create_wm_pool create_wm_trigger drop_catalog drop_dataconnector_req drop_resource_plan
    drop_role drop_type drop_wm_mapping drop_wm_pool drop_wm_trigger find_next_compact find_next_compact2
    flushCache getCounter getCounters getCpuProfile getMetaConf getName getOption getOptions getStatus
    getStatusDetails getVersion get_active_resource_plan get_all_materialized_view_objects_for_rewriting
    get_all_resource_plans get_all_token_identifiers get_catalog get_catalogs
    get_current_notificationEventId get_dataconnector_req get_dataconnectors get_delegation_token
    get_file_metadata get_file_metadata_by_expr get_master_keys get_metastore_db_uuid
    get_principals_in_role get_properties get_replayed_txns_for_policy get_replication_metrics
    get_resource_plan get_role_grants_for_principal get_role_names get_runtime_stats get_scheduled_query
    get_schemas_by_cols get_serde get_token get_triggers_for_resourceplan get_type get_type_all
    grant_revoke_role grant_role list_roles partition_name_has_valid_characters partition_name_to_spec
    partition_name_to_vals put_file_metadata reinitialize remove_master_key remove_token
    renew_delegation_token revoke_role scheduled_query_maintenance scheduled_query_poll
    scheduled_query_progress seed_txn_id setMetaConf setOption set_hadoop_jobid set_properties set_ugi
    shutdown update_master_key validate_resource_plan
"""

ROUTES: dict[str, Route] = {
    **dict.fromkeys(_NAMED.split(), Route.NAMED),
    **dict.fromkeys(_DEFINES_DATABASE.split(), Route.DEFINES_DATABASE),
    **dict.fromkeys(_IN_TRANSACTION.split(), Route.IN_TRANSACTION),
    **dict.fromkeys(_TRANSACTION.split(), Route.TRANSACTION),
    **dict.fromkeys(("check_lock", "heartbeat", "unlock"), Route.LOCK_ID),
    "get_config_value": Route.SETTING,
    "abort_Compactions": Route.UNKNOWN,
    "lock": Route.LOCK,
    "show_locks": Route.LOCKS,
    "get_valid_write_ids": Route.WRITE_IDS,
    "add_write_ids_to_min_history": Route.MIN_HISTORY,
    **dict.fromkeys(("get_table_objects_by_name", "get_table_objects_by_name_req"), Route.TABLES),
    **dict.fromkeys(
        ("get_all_databases", "get_all_functions", "get_databases", "get_databases_req", "get_table_meta"),
        Route.ALL,
    ),
    **dict.fromkeys(
        ("get_all_tables", "get_table_names_by_filter", "get_tables", "get_tables_by_type", "get_tables_ext"),
        Route.LISTING,
    ),
    **dict.fromkeys(_PRIMARY.split(), Route.PRIMARY),
}
#: Methods that drop a table; the gateway refuses them for a single table of another metastore.
DROPS_TABLE = frozenset({"drop_table", "drop_table_req", "drop_table_with_environment_context"})
#: Calls of the class "write" that readers make, too; so are commits that change nothing else.
HARMLESS = frozenset({"abort_txn", "abort_txns", "heartbeat_txn_range", "open_txns"})
