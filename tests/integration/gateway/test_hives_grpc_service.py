"""Apache's own Java stub calls Hive's service at the gateway; what it gets is what Thrift answers."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import MetastoreError
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.services import pools
from airflow_hive_federation.gateway.services.matching import plain
from airflow_hive_federation.gateway.services.rpcs import SERVICE, WITHOUT, rpc, rpc_names
from airflow_hive_federation.gateway.services.unary import HivesService
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.struct import Struct
from airflow_hive_federation.replication.dump.drain import open_transactions
from tests.support.hives_rpcs import COLUMNS, FILLED, NUMBERED, STEPS, STORAGE
from tests.support.java_stub import JavaStub, java_stub

THEIRS, OURS = "judge_grpc", "judge_thrift"
OK = "OK"
#: What Hive's proto has no field for.
LOST = {"owner", "ownername", "ownertype", "deserializerclas", "poolname", "partitioncolschema"}
#: What differs from call to call.
MOVING = {
    "createtime", "lastaccesstime", "eventtime", "lastanalyzed", "transientlastddltime", "id", "txnid",
    "opentxn", "txnhighwatermark", "minopentxn", "abortedbit", "timestamp",
}  # fmt: skip


class Proto:
    """Hive's messages as any client of Python makes them."""

    def __init__(self) -> None:
        pool = DescriptorPool()
        pools.add_to(pool, pools.HIVES)
        self.methods = pool.FindServiceByName(f"{pools.hives().package}.{SERVICE}").methods_by_name

    def request(self, name: str, fields: dict[str, Any], database: str, warehouse: str) -> bytes:
        text = json.dumps(fields).replace("{db}", database).replace("{warehouse}", warehouse)
        kind = message_factory.GetMessageClass(self.methods[name].input_type)
        return bytes(json_format.ParseDict(json.loads(text), kind()).SerializeToString())

    def response(self, name: str, data: bytes) -> dict[str, Any]:
        kind = message_factory.GetMessageClass(self.methods[name].output_type)
        return json_format.MessageToDict(kind.FromString(data), preserving_proto_field_name=True)


@pytest.fixture(scope="module")
def stub(source: EmbeddedMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaStub]:
    with ExitStack() as stack:
        target = Metastore(Upstream("main", MetastoreSettings(uris=(source.uri,))))
        stack.callback(target.close)
        front = GrpcFront(Gateway(target), GrpcFrontSettings(port=0), [HivesService()])
        stack.callback(front.stop, 0)
        front.start()
        yield stack.enter_context(java_stub(front.port, tmp_path_factory.mktemp("stub")))


@pytest.fixture(scope="module")
def proto() -> Proto:
    return Proto()


def short(name: str) -> str:
    return plain(name).removesuffix("es").removesuffix("s")


def leaves(value: Any, name: str, enum: Any = None) -> Iterator[tuple[str, str]]:
    """Names and values of what is no default, of JSON and of structs alike."""
    if isinstance(value, Struct):
        for field in value.thrift_spec.values():
            kind = field[2] if field[0] == 8 and len(field) == 4 else None
            yield from leaves(getattr(value, field[1], None), short(field[1]), kind)
    elif isinstance(value, dict):
        for key, item in value.items():
            # The proto's message around a list within a list.
            yield from leaves(item, name if key == "string_lists" and name else short(str(key)))
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item, name)
    elif value and name not in MOVING | LOST:
        yield name, spelt(value, enum)


def spelt(value: Any, enum: Any) -> str:
    if enum is not None:
        return plain(f"{enum.__name__}{enum(value).name}")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    text = str(value)
    return plain(text) if text.isupper() else text


def field_counts(value: Any, *, named: bool) -> Counter[tuple[str, str]]:
    return Counter((name if named else "", text.replace(OURS, THEIRS)) for name, text in leaves(value, ""))


def thrift(client: MetastoreClient, name: str, request: bytes) -> tuple[str, Any]:
    """The exception's name and the answer of the same call by Thrift.

    Hive closes the connection where a method fails that declares no exception: that has no name.
    """
    known = rpc(name)
    assert known is not None
    arguments = known.read(request)
    names = [field[1] for field in message_types(known.method)[0].thrift_spec.values()]
    try:
        return OK, client.call(known.method, *(getattr(arguments, name) for name in names))
    except MetastoreError as error:
        name = str(error.facts.get("server_exception", ""))
        return name.removeprefix("ApplicationFault"), str(error)


def test_every_answer_is_that_of_thrift(
    stub: JavaStub, proto: Proto, client: MetastoreClient, source: EmbeddedMetastore, tmp_path: Path
) -> None:
    differing, before = [], set(open_transactions(client.get_open_txns()))
    for number, (name, fields) in enumerate(STEPS):
        got = stub.call(name, proto.request(name, fields, THEIRS, str(tmp_path)))
        exception, value = thrift(client, name, proto.request(name, fields, OURS, str(tmp_path)))
        call = f"{number} {name}: {got.code} {got.text!r}"
        if exception != OK:
            if got.code == "OK" or got.exception != exception:
                differing.append(f"{call}, by Thrift {exception} {value!r}")
        elif got.code != "OK":
            differing.append(f"{call}, by Thrift it answers")
        else:
            named = isinstance(value, Struct)
            theirs, ours = (
                field_counts(proto.response(name, got.data), named=named),
                field_counts(value, named=named),
            )
            if theirs != ours:
                differing.append(f"{call}: only by gRPC {theirs - ours}, only by Thrift {ours - theirs}")
    # Open for minutes, they would hold up the cleaner of other tests.
    client.abort_txns(sorted(set(open_transactions(client.get_open_txns())) - before))
    assert not differing, "\n".join(differing)


def filled(proto: Proto, name: str, number: int) -> dict[str, Any]:
    fields = {}
    for field in proto.methods[name].input_type.fields:
        value = FILLED.get(field.name, number if field.name in NUMBERED else None)
        fits = field.type == field.TYPE_STRING if isinstance(value, str) else field.cpp_type in {1, 2}
        if value is not None and fits and not field.is_repeated:
            fields[field.name] = value
    return fields


def test_every_other_rpc_ends_as_by_thrift(stub: JavaStub, proto: Proto, client: MetastoreClient) -> None:
    done = {name for name, _ in STEPS}
    # Of one connection, which the gateway keeps to itself, or refuses.
    apart = {*done, *WITHOUT, "SetUgi", "SetMetaConf"}
    others = [name for name in rpc_names() if name not in apart]
    assert len(apart) + len(others) == 235
    differing = []
    for name in others:
        got = stub.call(name, proto.request(name, filled(proto, name, 999_999_999), THEIRS, ""))
        exception, value = thrift(
            client, name, proto.request(name, filled(proto, name, 999_999_998), OURS, "")
        )
        if (got.code == "OK") != (exception == OK) or (exception != OK and got.exception != exception):
            got_text = f"{got.code} {got.exception} {got.text!r}"
            differing.append(f"{name}: {got_text}, by Thrift {exception} {value!r}")
    assert not differing, "\n".join(differing)


def test_calls_without_counterpart_are_unimplemented(stub: JavaStub, proto: Proto) -> None:
    for name in WITHOUT:
        got = stub.call(name, proto.request(name, {}, THEIRS, ""))
        assert got.code == "UNIMPLEMENTED"
        assert name in got.text


def test_a_change_takes_away_nothing_that_the_proto_lacks(
    stub: JavaStub, proto: Proto, client: MetastoreClient
) -> None:
    client.create_database(types.Database(name="narrow"))
    made = types.Table(
        dbName="narrow",
        tableName="t",
        owner="alice",
        tableType="EXTERNAL_TABLE",
        parameters={"EXTERNAL": "TRUE"},
        sd=types.StorageDescriptor(
            cols=[types.FieldSchema(name=column["name"], type=column["type"]) for column in COLUMNS],
            inputFormat=STORAGE["input_format"],
            outputFormat=STORAGE["output_format"],
            serdeInfo=types.SerDeInfo(
                serializationLib=STORAGE["serde_info"]["serialization_lib"], deserializerClass="org.D"
            ),
        ),
    )
    client.create_table(made)
    names = {"db_name": "narrow", "tbl_name": "t"}
    read = stub.call("GetTableReq", proto.request("GetTableReq", names, "", ""))
    changed = proto.response("GetTableReq", read.data)["table"]
    changed["parameters"]["comment"] = "new"
    request = {"db_name": "narrow", "table_name": "t", "table": changed}
    got = stub.call("AlterTableReq", proto.request("AlterTableReq", request, "", ""))
    assert (got.code, got.text) == ("OK", "")
    table = client.get_table("narrow", "t")
    assert (table.parameters or {})["comment"] == "new"
    assert table.owner == "alice"
    assert table.sd is not None
    assert table.sd.serdeInfo is not None
    assert table.sd.serdeInfo.deserializerClass == "org.D"
