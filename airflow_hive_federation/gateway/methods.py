"""Lists the access class of every method of Hive's interface: reading, writing or administering.

The gateway refuses methods that are not in these lists, since their effects are unknown.
``test_gateway_methods.py`` compares the lists with the interface definition.
"""

from __future__ import annotations

from enum import StrEnum


class Access(StrEnum):
    """The permission that a caller needs for a method."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_READ = """
    aliveSince fetch_partition_names_req find_columns_with_stats find_package getCounter getCounters
    getMetaConf getName getOption getOptions getStatus getStatusDetails getVersion
    get_active_resource_plan get_aggr_stats_for get_all_databases get_all_functions
    get_all_materialized_view_objects_for_rewriting get_all_packages get_all_resource_plans
    get_all_stored_procedures get_all_table_constraints get_all_tables get_all_write_event_info
    get_catalog get_catalogs get_check_constraints get_config_value get_current_notificationEventId
    get_database get_database_req get_databases get_databases_req get_dataconnector_req
    get_dataconnectors get_default_constraints get_fields get_fields_req
    get_fields_with_environment_context get_file_metadata get_file_metadata_by_expr get_foreign_keys
    get_function get_functions get_functions_req get_ischema get_latest_committed_compaction_info
    get_latest_txnid_in_conflict get_materialization_invalidation_info
    get_materialized_views_for_rewriting get_max_allocated_table_write_id get_metastore_db_uuid
    get_next_notification get_not_null_constraints get_notification_events_count
    get_num_partitions_by_filter get_open_txns get_open_txns_info get_open_txns_req
    get_part_specs_by_filter get_partition get_partition_by_name get_partition_column_statistics
    get_partition_names get_partition_names_ps get_partition_names_ps_req get_partition_names_req
    get_partition_req get_partition_values get_partition_with_auth get_partitions get_partitions_by_expr
    get_partitions_by_filter get_partitions_by_filter_req get_partitions_by_names
    get_partitions_by_names_req get_partitions_ps get_partitions_ps_with_auth
    get_partitions_ps_with_auth_req get_partitions_pspec get_partitions_req get_partitions_spec_by_expr
    get_partitions_statistics_req get_partitions_with_auth get_partitions_with_specs get_primary_keys
    get_principals_in_role get_privilege_set get_properties get_replayed_txns_for_policy
    get_replication_metrics get_resource_plan get_role_grants_for_principal get_role_names
    get_runtime_stats get_scheduled_query get_schema get_schema_all_versions get_schema_latest_version
    get_schema_req get_schema_version get_schema_with_environment_context get_schemas_by_cols get_serde
    get_stored_procedure get_table get_table_column_statistics get_table_meta get_table_names_by_filter
    get_table_objects_by_name get_table_objects_by_name_req get_table_req get_table_statistics_req
    get_tables get_tables_by_type get_tables_ext get_triggers_for_resourceplan get_type get_type_all
    get_unique_constraints get_valid_write_ids isPartitionMarkedForEvent list_privileges list_roles
    partition_name_has_valid_characters partition_name_to_spec partition_name_to_vals set_ugi
    show_compact show_locks translate_table_dryrun validate_resource_plan
"""

_WRITE = """
    abort_txn abort_txns add_check_constraint add_default_constraint add_dynamic_partitions
    add_foreign_key add_not_null_constraint add_package add_partition
    add_partition_with_environment_context add_partitions add_partitions_pspec add_partitions_req
    add_primary_key add_runtime_stats add_schema_version add_serde add_unique_constraint
    add_write_ids_to_min_history add_write_notification_log add_write_notification_log_in_batch
    allocate_table_write_ids alter_database alter_database_req alter_function alter_ischema
    alter_partition alter_partition_with_environment_context alter_partitions alter_partitions_req
    alter_partitions_with_environment_context alter_table alter_table_req alter_table_with_cascade
    alter_table_with_environment_context append_partition append_partition_by_name
    append_partition_by_name_with_environment_context append_partition_req
    append_partition_with_environment_context check_lock commit_txn compact compact2 create_database
    create_database_req create_function create_ischema create_stored_procedure create_table
    create_table_req create_table_with_constraints create_table_with_environment_context create_type
    delete_column_statistics_req delete_partition_column_statistics delete_table_column_statistics
    drop_constraint drop_database drop_database_req drop_function drop_ischema drop_package
    drop_partition drop_partition_by_name drop_partition_by_name_with_environment_context
    drop_partition_req drop_partition_with_environment_context drop_partitions_req drop_schema_version
    drop_stored_procedure drop_table drop_table_req drop_table_with_environment_context drop_type
    exchange_partition exchange_partitions fire_listener_event get_lock_materialization_rebuild
    heartbeat heartbeat_lock_materialization_rebuild heartbeat_txn_range lock
    map_schema_version_to_serde markPartitionForEvent open_txns rename_partition rename_partition_req
    setMetaConf set_aggr_stats_for set_schema_version_state truncate_table truncate_table_req unlock
    update_creation_metadata update_partition_column_statistics update_partition_column_statistics_req
    update_table_column_statistics update_table_column_statistics_req update_transaction_statistics
"""

_ADMIN = """
    abort_Compactions add_master_key add_replication_metrics add_token alter_catalog
    alter_dataconnector_req alter_resource_plan alter_wm_pool alter_wm_trigger cache_file_metadata
    cancel_delegation_token clear_file_metadata cm_recycle create_catalog create_dataconnector_req
    create_or_drop_wm_trigger_to_pool_mapping create_or_update_wm_mapping create_resource_plan
    create_role create_wm_pool create_wm_trigger drop_catalog drop_dataconnector_req drop_resource_plan
    drop_role drop_wm_mapping drop_wm_pool drop_wm_trigger find_next_compact find_next_compact2
    flushCache getCpuProfile get_all_token_identifiers get_delegation_token get_master_keys get_token
    grant_privileges grant_revoke_privileges grant_revoke_role grant_role mark_cleaned mark_compacted
    mark_failed mark_refused put_file_metadata refresh_privileges reinitialize
    remove_compaction_metrics_data remove_master_key remove_token renew_delegation_token
    repl_tbl_writeid_state revoke_privileges revoke_role scheduled_query_maintenance
    scheduled_query_poll scheduled_query_progress seed_txn_id seed_write_id setOption set_hadoop_jobid
    set_properties shutdown submit_for_cleanup update_compaction_metrics_data
    update_compactor_state update_master_key
"""

ACCESS: dict[str, Access] = {
    **dict.fromkeys(_READ.split(), Access.READ),
    **dict.fromkeys(_WRITE.split(), Access.WRITE),
    **dict.fromkeys(_ADMIN.split(), Access.ADMIN),
}

_NO_DATABASE_WORDS = """
    abort_txn abort_txns add_runtime_stats add_write_ids_to_min_history get_latest_txnid_in_conflict
    aliveSince check_lock commit_txn get_catalog get_catalogs get_config_value
    get_current_notificationEventId get_metastore_db_uuid get_open_txns get_open_txns_req
    get_role_names get_type get_type_all getMetaConf getName getStatus getStatusDetails getVersion
    heartbeat heartbeat_txn_range open_txns partition_name_has_valid_characters
    partition_name_to_spec partition_name_to_vals setMetaConf set_ugi unlock
"""
#: Methods that concern no database: callers with permission for only some databases may call them.
OF_NO_DATABASE = frozenset(_NO_DATABASE_WORDS.split())
#: Methods that a gateway never passes on: they would end the metastore for everybody.
NEVER = frozenset({"reinitialize", "shutdown"})
#: Methods of Hive 2 without a successor: Hive 3.0 removed indexes (HIVE-18448).
INDEXES = frozenset(
    ["add_index", "alter_index", "drop_index_by_name", "get_index_by_name", "get_index_names", "get_indexes"]
)
