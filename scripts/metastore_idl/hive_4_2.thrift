// What a Hive 4.2.1 metastore speaks beyond the interface definition of 4.0.1: fields, structs, enum values and
// methods, read by reflection from the classes of hive-exec 4.2.1. A struct or enum that 4.0.1 has already is
// continued here: only its new members are listed, and the generator merges them.

include "hive_metastore.thrift"

namespace py hive_4_2

enum CompactionType {
  SMART_OPTIMIZE = 5
}

struct Catalog {
  5: optional map<string, string> parameters
}

struct DropCatalogRequest {
  2: optional bool ifExists
}

struct FireEventRequest {
  8: optional list<list<string>> batchPartitionValsForRefresh
}

struct NotificationEventRequest {
  7: optional list<string> eventTypeList
}

struct DeleteColumnStatisticsRequest {
  1: optional string cat_name
  2: required string db_name
  3: required string tbl_name
  4: optional list<string> part_names
  5: optional list<string> col_names
  6: optional string engine
  7: optional bool tableLevel
}

struct GetDatabaseObjectsRequest {
  1: optional string catalogName
  2: optional string pattern
}

struct GetDatabaseObjectsResponse {
  1: required list<hive_metastore.Database> databases
}

struct GetFunctionsRequest {
  1: required string dbName
  2: optional string catalogName
  3: optional string pattern
  4: optional bool returnNames
}

struct GetFunctionsResponse {
  1: optional list<string> function_names
  2: optional list<hive_metastore.Function> functions
}

struct ReplayedTxnsForPolicyResult {
  1: map<string, string> replTxnMapEntry
}

service ThriftHiveMetastore {
  bool delete_column_statistics_req(1: DeleteColumnStatisticsRequest req)
    throws (1: hive_metastore.NoSuchObjectException o1, 2: hive_metastore.MetaException o2,
            3: hive_metastore.InvalidObjectException o3, 4: hive_metastore.InvalidInputException o4)
  GetDatabaseObjectsResponse get_databases_req(1: GetDatabaseObjectsRequest request)
    throws (1: hive_metastore.MetaException o1)
  GetFunctionsResponse get_functions_req(1: GetFunctionsRequest request)
    throws (1: hive_metastore.MetaException o1)
  ReplayedTxnsForPolicyResult get_replayed_txns_for_policy(1: string policyName)
    throws (1: hive_metastore.MetaException o1)
}
