"""Hive's own messages beside the structs that they stand for: each rpc, with random values."""

from __future__ import annotations

import random
from typing import Any

import pytest

from airflow_hive_federation.errors import GatewayError
from airflow_hive_federation.gateway.services.bounds import MAX_STRUCTS_DEEP, BadMessage, Bounds
from airflow_hive_federation.gateway.services.bridge import ALWAYS_SENT, Bridge, bridge, enum_numbers
from airflow_hive_federation.gateway.services.matching import SAME, match, plain
from airflow_hive_federation.gateway.services.narrowing import carry_over
from airflow_hive_federation.gateway.services.pools import hives
from airflow_hive_federation.gateway.services.rpcs import SERVICE, WITHOUT, rpc, rpc_names
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from tests.support.structs import random_struct

#: Fields of structs that no message of Hive's has, of the structs that replace what is there.
LOST = {
    "Table": ("owner",),
    "SerDeInfo": ("deserializerClass",),
    "StorageDescriptor": (),
    "Partition": (),
    "Database": (),
    "Function": (),
    "Catalog": ("parameters",),
}


def kind_of(name: str) -> Any:
    return hives().kind(name)


def bridged() -> list[tuple[str, str]]:
    """Messages and structs of the same name, which are most."""
    names = hives().service(SERVICE).file
    return sorted((name, name) for name in names.message_types_by_name if hasattr(types, name))


PAIRS = bridged()


@pytest.mark.parametrize(("message", "struct"), PAIRS, ids=[pair for pair, _ in PAIRS])
def test_a_message_written_and_read_is_the_same_message(message: str, struct: str) -> None:
    made, kind = bridge(kind_of(message).DESCRIPTOR, getattr(types, struct)), kind_of(message)
    rng = random.Random(f"{message} 20261125")
    for _ in range(20):
        value = random_struct(getattr(types, struct), rng)
        first, second = kind(), kind()
        made.write(first, value)
        made.write(second, made.read(kind.FromString(first.SerializeToString()), Bounds(1000)))
        assert first == second


@pytest.mark.parametrize("name", sorted(set(rpc_names()) - set(WITHOUT)))
def test_every_rpc_reads_its_request_and_writes_its_answer(name: str) -> None:
    known = rpc(name)
    assert known is not None
    request = kind_of(hives().service(SERVICE).methods_by_name[name].input_type.name)
    encode(known.read(request().SerializeToString()))
    rng = random.Random(f"{name} 20261125")
    _, result, _ = message_types(known.method)
    for _ in range(5):
        known.write(random_struct(result, rng))


def test_few_fields_are_lost_and_these() -> None:
    lost = {
        name: match(kind_of(name).DESCRIPTOR, getattr(types, name).thrift_spec).only_struct for name in LOST
    }
    assert lost == LOST


def test_the_names_that_are_written_otherwise_are_needed() -> None:
    for (message, field), name in SAME.items():
        assert field in kind_of(message).DESCRIPTOR.fields_by_name
        assert plain(field).removesuffix("s") != plain(name)


def test_what_is_always_sent_exists() -> None:
    for struct, names in ALWAYS_SENT.items():
        assert names <= {field[1] for field in getattr(types, struct).thrift_spec.values()}


def test_enums_are_matched_by_name() -> None:
    described = kind_of("OpenTxnsRequest").DESCRIPTOR.fields_by_name["txn_type"].enum_type
    numbers = enum_numbers(described, types.TxnType)
    assert numbers == {1: 1, 2: 2, 3: 3, 4: 4, 5: 5}
    state = kind_of("ScheduledQueryProgressInfo").DESCRIPTOR.fields_by_name["state"].enum_type
    assert enum_numbers(state, types.QueryState)[0] == types.QueryState.INITED


def test_a_boolean_that_is_true_by_default_is_sent_when_it_is_false() -> None:
    drop = rpc("DropDatabaseReq")
    assert drop is not None
    arguments: Any = drop.read(b"")
    assert arguments.req.deleteManagedDir is False
    assert arguments.req.softDelete is None


def test_a_field_without_a_counterpart_is_refused_if_it_is_set() -> None:
    described = kind_of("Table").DESCRIPTOR
    spec = {
        number: field for number, field in types.Table.thrift_spec.items() if field[1] != "viewOriginalText"
    }
    made = Bridge(described, spec, "Table", types.Table)
    made.read(kind_of("Table")(table_name="t"), Bounds(0))
    with pytest.raises(BadMessage, match=r"no field for Table.view_original_text"):
        made.read(kind_of("Table")(view_original_text="SELECT 1"), Bounds(0))


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("GetPartitionsByFilter", {"max_parts": 1 << 20}, "is not between"),
        ("SetHadoopJobid", {"cq_id": "seven"}, "'seven' is no number"),
        ("CreateFunction", {"function_type": 99}, "99 is no FunctionType"),
    ],
    ids=["range", "text", "enum"],
)
def test_a_value_of_no_use_is_refused(name: str, fields: dict[str, Any], text: str) -> None:
    request = kind_of(hives().service(SERVICE).methods_by_name[name].input_type.name)
    known = rpc(name)
    assert known is not None
    with pytest.raises(BadMessage, match=text):
        known.read(request(**fields).SerializeToString())


def test_what_the_message_lacks_is_carried_over_however_deep() -> None:
    old = types.Table(
        owner="alice",
        sd=types.StorageDescriptor(serdeInfo=types.SerDeInfo(deserializerClass="org.D", name="old")),
    )
    new = types.Table(tableName="t", sd=types.StorageDescriptor(serdeInfo=types.SerDeInfo(name="new")))
    carry_over(kind_of("Table").DESCRIPTOR, new, old)
    assert new.owner == "alice"
    assert new.sd == types.StorageDescriptor(serdeInfo=types.SerDeInfo(deserializerClass="org.D", name="new"))


def test_what_would_be_lost_within_a_list_is_refused() -> None:
    def view(**table: Any) -> types.Table:
        source = types.SourceTable(
            table=types.Table(tableName="s", **table), insertedCount=0, updatedCount=0, deletedCount=0
        )
        return types.Table(creationMetadata=types.CreationMetadata(sourceTables=[source]))

    carry_over(kind_of("Table").DESCRIPTOR, view(), view())
    with pytest.raises(GatewayError, match=r"creationMetadata.sourceTables.table.owner away"):
        carry_over(kind_of("Table").DESCRIPTOR, view(), view(owner="alice"))
    below = view(owner="alice").creationMetadata
    with pytest.raises(GatewayError, match=r"table.creationMetadata.sourceTables.table.owner away"):
        carry_over(kind_of("Table").DESCRIPTOR, view(), view(creationMetadata=below))


def test_nesting_has_an_end() -> None:
    def nested(levels: int) -> Any:
        table = kind_of("Table")()
        below = table
        for _ in range(levels):
            below = below.creation_metadata.source_tables.add().table
        return table

    made = bridge(kind_of("Table").DESCRIPTOR, types.Table)
    made.read(nested(MAX_STRUCTS_DEEP // 3 - 1), Bounds(0))
    with pytest.raises(BadMessage, match="nested more than"):
        made.read(nested(MAX_STRUCTS_DEEP // 3 + 1), Bounds(0))
