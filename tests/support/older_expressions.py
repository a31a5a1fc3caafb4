"""Expressions by which Hive 2.3 and 3.1 ask for the partitions of a query, as they were sent.

Both versions write the same bytes (Kryo 3); these are of a table that is partitioned by a text and a number.
Hive 4 (Kryo 5) reads neither.
"""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.wire_structs import partition, table

#: ``p = 'a'``: Hive 4 ends the connection.
BREAKS_THE_CONNECTION = (
    b"\x01\x01\x00java.util.ArrayLis\xf4\x01\x02\x01\x01org.apache.hadoop.hive.ql.plan.Exp"
    b"rNodeColumnDes\xe3\x01\x01\x82p\x01\x00\x01kryo_3.\xf4\x01\x02org.apache.hadoop.hive.serde"
    b"2.typeinfo.PrimitiveTypeInf\xef\x01\x01strin\xe7\x01\x03org.apache.hadoop.hive"
    b".ql.plan.ExprNodeConstantDes\xe3\x01\x01\x02\x07\x03\x01\x82a\x01\x04org.apache.hadoop.hiv"
    b"e.ql.udf.generic.GenericUDFOPEqua\xec\x01\x00\x00\x01\x82=\x01EQUA\xcc\x01\x05org.apache.h"
    b"adoop.io.BooleanWritabl\xe5\x01\x00\x00\x01\x02\x01\x01boolea\xee"
)
#: ``concat(p, 'x') = 'ax'``: Hive 4 answers with a ``MetaException``.
IS_ANSWERED_WITH_A_FAULT = (
    b"\x01\x01\x00java.util.ArrayLis\xf4\x01\x02\x01\x01org.apache.hadoop.hive.ql.plan.Exp"
    b"rNodeGenericFuncDes\xe3\x01\x01\x00\x01\x02\x01\x02org.apache.hadoop.hive.ql.plan.Ex"
    b"prNodeColumnDes\xe3\x01\x01\x82p\x01\x00\x01kryo_3.\xf4\x01\x03org.apache.hadoop.hive.serd"
    b"e2.typeinfo.PrimitiveTypeInf\xef\x01\x01strin\xe7\x01\x04org.apache.hadoop.hiv"
    b"e.ql.plan.ExprNodeConstantDes\xe3\x01\x01\x03\t\x03\x01\x82x\x01\x05org.apache.hadoop.hi"
    b"ve.ql.udf.generic.GenericUDFConca\xf4\x01\x00\x01\x03\t\x01\x04\x01\x01\x03\t\x03\x01a\xf8\x01\x06org.apach"
    b"e.hadoop.hive.ql.udf.generic.GenericUDFOPEqua\xec\x01\x00\x00\x01\x82=\x01EQUA\xcc\x01\x07"
    b"org.apache.hadoop.io.BooleanWritabl\xe5\x01\x00\x00\x01\x03\x01\x01boolea\xee"
)


def answers_expressions_of_older_clients(uri: str, direct: str) -> None:
    """A gateway answers with all partitions where its metastore refuses the expression.

    :param uri: the gateway.
    :param direct: the metastore behind it.
    """
    database = "older_expressions"
    with (
        MetastoreClient(MetastoreSettings(uris=(direct,))) as near,
        MetastoreClient(MetastoreSettings(uris=(uri,))) as client,
    ):
        near.create_database(types.Database(name=database, parameters={}))
        try:
            _make_partitions(near, database)
            for expression in (BREAKS_THE_CONNECTION, IS_ANSWERED_WITH_A_FAULT):
                request = types.PartitionsByExprRequest(
                    dbName=database, tblName="t", expr=expression, maxParts=-1
                )
                with pytest.raises(MetastoreError):
                    near.call("get_partitions_by_expr", request)
                answer = client.call("get_partitions_by_expr", request)
                assert sorted(one.values for one in answer.partitions) == [["a", "1"], ["b", "2"]]
                # Whoever asked filters the rows.
                assert answer.hasUnknownPartitions is True
        finally:
            near.drop_database(database, delete_data=True, cascade=True)


def _make_partitions(client: MetastoreClient, database: str) -> None:
    keys = [types.FieldSchema(name="p", type="string"), types.FieldSchema(name="n", type="int")]
    made = table("t", external=True, keys=keys)
    made.dbName = database
    client.create_table(made)
    described = client.get_table(database, "t")
    client.add_partitions([partition(described, *values) for values in (("a", "1"), ("b", "2"))])
