"""Parameters of one side reach no definition of the other one, in no spelling."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.wire import to_json
from airflow_hive_federation.model.side_parameters import (
    as_stored,
    is_side_parameter,
    shown_read_only,
    without_side_parameters,
)
from airflow_hive_federation.remotes import definitions as link_definitions
from airflow_hive_federation.replication.metadata.database_properties import database_claims, take_properties
from airflow_hive_federation.replication.metadata.definitions import (
    definition,
    not_replicated,
    target_partition,
    target_table,
)

PLANTED = {
    "hive.federation.remote.properties": "{}",
    "HIVE.Federation.Policy": "theirs",
    "repl.last.id": "99",
    "REPL.Last.Id": "99",
    "hive.repl.ckpt.key": "there",
    "Hive.Repl.anything": "x",
    "ReadOnly": "true",
    "hive.cluster.read.only.in": "C2",
    "hive.cluster.primary": "C1",
    "hive.cluster.primary.next": "C2",
    "Hive.Cluster.Secondary.C2.location": "s3://c2/t",
    "hive.cluster.secondary.C2.source": "1:a:1:1:b:c",
    "hive.cluster.kept.C2": "9",
}


def storage(location: str = "file:/far/t") -> types.StorageDescriptor:
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name="a", type="int")],
        location=location,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=types.SerDeInfo(serializationLib="x", parameters={**PLANTED, "field.delim": ","}),
        parameters={**PLANTED, "lasting": "yes"},
    )


def table(kind: str = "EXTERNAL_TABLE") -> Any:
    text = "SELECT `t`.`a` FROM `d`.`t`" if kind == "VIRTUAL_VIEW" else None
    return types.Table(
        dbName="d",
        tableName="t",
        tableType=kind,
        sd=storage(),
        parameters={**PLANTED, "lasting": "yes"},
        viewExpandedText=text,
        viewOriginalText=text,
    )


def partition() -> Any:
    return types.Partition(
        values=["x"], dbName="d", tableName="t", sd=storage(), parameters={**PLANTED, "lasting": "yes"}
    )


def crossed(made: Any) -> list[str]:
    """Names of parameters of a side, wherever in a wire struct."""

    def walk(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [
                *filter(is_side_parameter, value),
                *(key for part in value.values() for key in walk(part)),
            ]
        return [key for part in value for key in walk(part)] if isinstance(value, list) else []

    return walk(to_json(made))


@pytest.mark.parametrize("name", sorted(PLANTED))
def test_each_spelling_is_of_one_side(name: str) -> None:
    assert is_side_parameter(name)
    assert without_side_parameters({name: "x", "lasting": "yes"}) == {"lasting": "yes"}


@pytest.mark.parametrize(
    ("modes", "shown"),
    [(None, "READ_ONLY"), ("NO_DROP", "NO_DROP,READ_ONLY"), ("READ_ONLY,NO_DROP", "READ_ONLY,NO_DROP")],
)
def test_how_a_view_shows_a_table_stays_in_the_view(modes: str | None, shown: str) -> None:
    """A replica or a link that was made through it can be written where it lies."""
    source = table()
    source.parameters = {"lasting": "yes", **({"PROTECT_MODE": modes} if modes else {})}
    seen = table()
    seen.parameters = shown_read_only(source.parameters, "C2")
    assert seen.parameters["PROTECT_MODE"] == shown
    assert as_stored(seen.parameters) == source.parameters
    assert definition(seen) == definition(source)

    def made(read: types.Table) -> list[Any]:
        return [
            to_json(target_table(read, database="other", location="file:/near/t", parameters={})),
            to_json(link_definitions.local_table(read, database="l", name="n", owner="ada", link={})),
        ]

    assert made(seen) == made(source)


@pytest.mark.parametrize(
    "name", ["replication", "report.last.id", "hive.federated", "read.only", "hive.clustered"]
)
def test_others_are_not(name: str) -> None:
    assert not is_side_parameter(name)


@pytest.mark.parametrize("kind", ["EXTERNAL_TABLE", "MANAGED_TABLE", "VIRTUAL_VIEW"])
def test_tables_and_views_of_a_replica(kind: str) -> None:
    made = target_table(table(kind), database="other", location="file:/near/t", parameters={})
    assert crossed(made) == []
    assert made.parameters == {"lasting": "yes"}
    assert made.sd.serdeInfo.parameters == {"field.delim": ","}
    assert not [
        name for name in definition(table(kind)) if is_side_parameter(name.removeprefix("parameters."))
    ]


def test_the_source_stays_as_it_is() -> None:
    source = table()
    target_table(source, database="other", location="file:/near/t", parameters={})
    assert to_json(source) == to_json(table())


def test_partitions_of_a_replica() -> None:
    made = target_partition(partition(), database="other", location="file:/near/t/x", parameters={})
    assert crossed(made) == []


@pytest.mark.parametrize("adopted", [False, True], ids=["made", "adopted"])
def test_databases_of_a_replica(adopted: bool) -> None:
    source = types.Database(name="d", parameters={**PLANTED, "lasting": "yes"})
    target = types.Database(name="other", parameters={"repl.last.id": "1", "hive.federation.policy": "ours"})
    take_properties(target, source, adopted=adopted)
    assert target.parameters == {"repl.last.id": "1", "hive.federation.policy": "ours", "lasting": "yes"}
    assert database_claims(source) == {"parameters.lasting": "yes"}


def test_links() -> None:
    made = link_definitions.local_table(table(), database="l", name="n", owner="ada", link={"x": "y"})
    assert set(crossed(made)) == {link_definitions.READ_BY}
    for acid in (False, True):
        assert crossed(link_definitions.local_partition(partition(), database="l", name="n", acid=acid)) == []


def test_a_link_to_a_transactional_table_has_no_replica() -> None:
    remote = table("MANAGED_TABLE")
    remote.parameters = {"transactional": "true"}
    name = {"hive.federation.remote.name": "far.t"}
    linked = link_definitions.local_table(remote, database="l", name="n", owner="ada", link=name)
    assert not_replicated(linked) == "it stands for the transactional table far.t of another metastore"
    plain = link_definitions.local_table(table(), database="l", name="n", owner="ada", link=name)
    assert not_replicated(plain) is None
