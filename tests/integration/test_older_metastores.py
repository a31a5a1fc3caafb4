"""The client against Hive 2.3, which lacks calls that it uses on Hive 4."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_hive_federation.errors import UnsupportedMethodError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, examine
from airflow_hive_federation.metastore.idl import types
from tests.integration.plain_metastore import older_settings, plain_metastore, sparks_jars
from tests.integration.test_metastore_client import DATABASE, column_statistics, partition, table


@pytest.fixture(scope="module")
def hive_2(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a Hive 2.3 metastore, from the jars that pyspark carries."""
    home = tmp_path_factory.mktemp("hive-2")
    with plain_metastore(home, [sparks_jars()], older_settings(home)) as uri:
        yield uri


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
        assert [one.values for one in client.iter_partitions(DATABASE, "old")] == [["x"], ["z"]]
        client.set_column_statistics([column_statistics("old", "d=x")])
        assert set(client.get_partitions_column_statistics(DATABASE, "old", ["d=x", "d=z"])) == {"d=x"}
        assert client.get_table_constraints(DATABASE, "old").checkConstraints == []
        assert client.get_functions(DATABASE) == []
        with pytest.raises(UnsupportedMethodError, match="allocate_table_write_ids"):
            client.allocate_table_write_ids(DATABASE, "old", [1])

        client.drop_table(DATABASE, "old", delete_data=True)
        client.drop_database(DATABASE, delete_data=True)
        findings = {finding.name: finding.state for finding in examine(client)}
        assert (findings["version"], findings["capabilities"]) == ("warning", "error")
