"""Expressions by which Hive selects the partitions of a query, as they were sent.

Hive 2.3 and 3.1 write the same bytes (Kryo 3). No metastore of Hive 4 may get them: at the first ones, it
closes the connection or its JVM ends with a segmentation fault; to the second ones, it answers with a
``MetaException``.
"""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from tests.support.wire_structs import partition, table

#: ``p = 'a'``.
_EQUALS = (
    b"\x01\x01\x00java.util.ArrayLis\xf4\x01\x02\x01\x01org.apache.hadoop.hive.ql.plan.Exp"
    b"rNodeColumnDes\xe3\x01\x01\x82p\x01\x00\x01kryo_3.\xf4\x01\x02org.apache.hadoop.hive.serde"
    b"2.typeinfo.PrimitiveTypeInf\xef\x01\x01strin\xe7\x01\x03org.apache.hadoop.hive"
    b".ql.plan.ExprNodeConstantDes\xe3\x01\x01\x02\x07\x03\x01\x82a\x01\x04org.apache.hadoop.hiv"
    b"e.ql.udf.generic.GenericUDFOPEqua\xec\x01\x00\x00\x01\x82=\x01EQUA\xcc\x01\x05org.apache.h"
    b"adoop.io.BooleanWritabl\xe5\x01\x00\x00\x01\x02\x01\x01boolea\xee"
)
#: ``concat(p, 'x') = 'ax'``.
_EQUALS_CONCATENATED = (
    b"\x01\x01\x00java.util.ArrayLis\xf4\x01\x02\x01\x01org.apache.hadoop.hive.ql.plan.Exp"
    b"rNodeGenericFuncDes\xe3\x01\x01\x00\x01\x02\x01\x02org.apache.hadoop.hive.ql.plan.Ex"
    b"prNodeColumnDes\xe3\x01\x01\x82p\x01\x00\x01kryo_3.\xf4\x01\x03org.apache.hadoop.hive.serd"
    b"e2.typeinfo.PrimitiveTypeInf\xef\x01\x01strin\xe7\x01\x04org.apache.hadoop.hiv"
    b"e.ql.plan.ExprNodeConstantDes\xe3\x01\x01\x03\t\x03\x01\x82x\x01\x05org.apache.hadoop.hi"
    b"ve.ql.udf.generic.GenericUDFConca\xf4\x01\x00\x01\x03\t\x01\x04\x01\x01\x03\t\x03\x01a\xf8\x01\x06org.apach"
    b"e.hadoop.hive.ql.udf.generic.GenericUDFOPEqua\xec\x01\x00\x00\x01\x82=\x01EQUA\xcc\x01\x07"
    b"org.apache.hadoop.io.BooleanWritabl\xe5\x01\x00\x00\x01\x03\x01\x01boolea\xee"
)


OF_OLDER_HIVE = (_EQUALS, _EQUALS_CONCATENATED)
#: ``p = 'a'``, with the class of the root (``SerializationUtilities.serializeObjectWithTypeInformation``).
OF_HIVE_4 = (
    b"\x01\x00org.apache.hadoop.hive.ql.plan.ExprNodeGenericFuncDes\xe3\x01\x01\x01java.util.ArrayLis\xf4"
    b"\x01\x03\x01\x02org.apache.hadoop.hive.ql.plan.ExprNodeColumnDes\xe3\x01\x01\x82p\x01\x00\x01\x82t"
    b"\x01\x03org.apache.hadoop.hive.serde2.typeinfo.PrimitiveTypeInf\xef\x01\x01strin\xe7\x01\x04org.apac"
    b"he.hadoop.hive.ql.plan.ExprNodeConstantDes\xe3\x01\x01\x03\x07\x03\x01\x82a\x01\x05org.apache.hadoo"
    b"p.hive.ql.udf.generic.GenericUDFOPEqua\xec\x01\x00\x00\x01\x82=\x01EQUA\xcc\x01\x06org.apache.hadoop"
    b".io.BooleanWritabl\xe5\x01\x00\x00\x01\x03\x01\x01boolea\xee"
)


def answers_expressions(uri: str, direct: str) -> None:
    """A gateway keeps the expressions of older clients from Hive 4, and lets those of Hive 4 pass.

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
            for expression in OF_OLDER_HIVE:
                answer = _selected(client, database, expression)
                assert sorted(part.values for part in answer.partitions) == [["a", "1"], ["b", "2"]]
                # The caller filters the rows.
                assert answer.hasUnknownPartitions is True
                _refuses_to_drop(client, database, expression)
            answer = _selected(client, database, OF_HIVE_4)
            assert [part.values for part in answer.partitions] == [["a", "1"]]
            assert answer.hasUnknownPartitions is False
            assert len(near.list_partition_names(database, "t")) == 2
        finally:
            near.drop_database(database, delete_data=True, cascade=True)


def _selected(client: MetastoreClient, database: str, expression: bytes) -> types.PartitionsByExprResult:
    request = types.PartitionsByExprRequest(dbName=database, tblName="t", expr=expression, maxParts=-1)
    answer: types.PartitionsByExprResult = client.call("get_partitions_by_expr", request)
    return answer


def _refuses_to_drop(client: MetastoreClient, database: str, expression: bytes) -> None:
    parts = types.RequestPartsSpec(exprs=[types.DropPartitionsExpr(expr=expression)])
    request = types.DropPartitionsRequest(dbName=database, tblName="t", parts=parts, deleteData=True)
    with pytest.raises(MetastoreError, match="cannot read the expression"):
        client.call("drop_partitions_req", request)


def _make_partitions(client: MetastoreClient, database: str) -> None:
    keys = [types.FieldSchema(name="p", type="string"), types.FieldSchema(name="n", type="int")]
    made = table("t", external=True, keys=keys)
    made.dbName = database
    client.create_table(made)
    described = client.get_table(database, "t")
    client.add_partitions([partition(described, *values) for values in (("a", "1"), ("b", "2"))])
