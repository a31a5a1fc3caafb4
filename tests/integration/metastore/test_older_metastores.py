"""The client against Hive 2.3 and Hive 3.1, which lack calls that it uses on Hive 4."""

from __future__ import annotations

import pytest

from airflow_hive_federation.errors import NoSuchObjectError, UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, examine
from airflow_hive_federation.metastore.idl import types
from tests.support.wire_structs import DATABASE, column_statistics, insert_lock, partition, table

#: The gateway recognises a Hive 4, which reads other expressions, by this method.
PROBE = ("get_partitions_spec_by_expr", types.PartitionsByExprRequest(dbName="", tblName="", expr=b"\xff"))


def test_hive_2(hive_2: str) -> None:
    with MetastoreClient(MetastoreSettings(uris=(hive_2,), user="tester")) as client:
        client.drop_database(DATABASE, delete_data=True, cascade=True, if_exists=True)
        client.create_database(types.Database(name=DATABASE, parameters={"a": "b"}))
        assert client.get_database(DATABASE).parameters == {"a": "b"}

        client.create_table(table("old", external=True, keys=[types.FieldSchema(name="d", type="string")]))
        made = client.get_table(DATABASE, "old")
        made.parameters = {**(made.parameters or {}), "c": "d"}
        client.alter_table(DATABASE, "old", made)
        assert (client.get_tables(DATABASE, ["old"])[0].parameters or {})["c"] == "d"
        client.add_partitions([partition(made, value) for value in "xyz"])
        client.drop_partitions(DATABASE, "old", ["d=y"], delete_data=True)
        assert [partition.values for partition in client.iter_partitions(DATABASE, "old")] == [["x"], ["z"]]
        client.set_column_statistics([column_statistics("old", "d=x")])
        assert set(client.get_partitions_column_statistics(DATABASE, "old", ["d=x", "d=z"])) == {"d=x"}
        assert client.get_table_constraints(DATABASE, "old").checkConstraints == []
        assert client.get_functions(DATABASE) == []
        with pytest.raises(UnsupportedMethodError, match="allocate_table_write_ids"):
            client.allocate_table_write_ids(DATABASE, "old", [1])
        with pytest.raises(UnsupportedMethodError):
            client.call(*PROBE)

        client.drop_table(DATABASE, "old", delete_data=True)
        client.drop_database(DATABASE, delete_data=True)
        findings = {finding.name: finding.state for finding in examine(client)}
        assert (findings["version"], findings["capabilities"]) == ("warning", "error")


def test_hive_3(hive_3: str) -> None:
    with MetastoreClient(MetastoreSettings(uris=(hive_3,), user="tester")) as client:
        findings = {finding.name: finding.state for finding in examine(client)}
        assert (findings["version"], findings["capabilities"]) == ("warning", "ok")
        client.create_database(types.Database(name=DATABASE, parameters={"a": "b"}))
        client.create_table(table("acid", keys=[types.FieldSchema(name="d", type="string")]))
        made = client.get_table(DATABASE, "acid")
        assert (made.tableType, (made.parameters or {})["transactional"]) == ("MANAGED_TABLE", "true")
        client.add_partitions([partition(made, value) for value in "xyz"])
        assert client.list_partition_names(DATABASE, "acid") == ["d=x", "d=y", "d=z"]
        assert [partition.values for partition in client.iter_partitions(DATABASE, "acid")] == [
            ["x"],
            ["y"],
            ["z"],
        ]
        client.set_column_statistics([column_statistics("acid", "d=x")])
        assert set(client.get_partitions_column_statistics(DATABASE, "acid", ["d=x", "d=z"])) == {"d=x"}
        assert client.get_table_constraints(DATABASE, "acid").primaryKeys == []
        with pytest.raises(UnsupportedMethodError):
            client.call(*PROBE)
        with pytest.raises(NoSuchObjectError, match="nothing"):
            client.get_table(DATABASE, "nothing")

        (first, second) = client.open_txns(2)
        write_ids = client.allocate_table_write_ids(DATABASE, "acid", [first, second])
        # Without a table to write to, housekeeping would forget the transaction once it is aborted.
        client.lock([insert_lock("acid")], txn_id=second)
        client.abort_txns([second])
        name = f"{DATABASE}.acid"
        valid = client.get_valid_write_ids([name])[name]
        assert valid.writeIdHighWaterMark == write_ids[second]
        assert set(valid.invalidWriteIds or []) == set(write_ids.values())
        assert first in (client.get_open_txns().open_txns or [])
        client.commit_txn(first)
        assert client.get_valid_write_ids([name])[name].invalidWriteIds == [write_ids[second]]

        client.drop_database(DATABASE, delete_data=True, cascade=True)
        findings = {finding.name: finding for finding in examine(client)}
        assert findings["version"].state == "warning"
        # The answer of getVersion of Hive 3.1.
        assert "3.0" in findings["version"].detail
