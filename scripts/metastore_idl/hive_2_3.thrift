// Methods of Hive 2 and 3 that 4.0.1 has dropped and that have no equal there: compat.py falls back on them.

include "hive_metastore.thrift"

namespace py hive_2_3

service ThriftHiveMetastore {
  hive_metastore.Table get_table(1: string dbname, 2: string tbl_name)
    throws (1: hive_metastore.MetaException o1, 2: hive_metastore.NoSuchObjectException o2)
  list<hive_metastore.Table> get_table_objects_by_name(1: string dbname, 2: list<string> tbl_names)
    throws (1: hive_metastore.MetaException o1, 2: hive_metastore.InvalidOperationException o2,
            3: hive_metastore.UnknownDBException o3)
}
