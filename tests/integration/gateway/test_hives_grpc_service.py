"""Apache's own Java stub calls Hive's service at the gateway; what it gets is what Thrift answers."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
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
from airflow_hive_federation.gateway.methods import ACCESS, Access
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
from tests.support.hives_other_rpcs import CAPTURED, OTHER_STEPS, SHOWN
from tests.support.hives_rpcs import COLUMNS, STEPS, STORAGE
from tests.support.java_stub import JavaStub, java_stub

THEIRS, OURS = "judge_grpc", "judge_thrift"
OK = "OK"
#: Fields that Hive's proto lacks.
LOST = {"owner", "ownername", "ownertype", "deserializerclas", "poolname", "partitioncolschema"}
#: Rpcs that only end with an exception here: for delegation tokens the metastore would need Kerberos; Derby
#: gives master keys no numbers; names of partitions need an expression of Hive's own serialization.
UNANSWERED = {
    "AddMasterKey", "CancelDelegationToken", "ClearFileMetadata", "GetDelegationToken",
    "GetPartitionNamesReq", "GetTypeAll", "RenewDelegationToken", "SeedTxnId", "UpdateMasterKey",
}  # fmt: skip
#: Rpcs that fail in the metastore's database, so that Hive tries them ten times, every two seconds.
RETRIED = {"AddMasterKey"}
#: Fields whose values differ from call to call.
MOVING = {
    "createtime", "lastaccesstime", "eventtime", "lastanalyzed", "transientlastddltime", "id", "txnid",
    "opentxn", "txnhighwatermark", "minopentxn", "abortedbit", "timestamp", "info", "lockid", "acquiredat",
    "lastheartbeat", "tableobj", "materializationtime", "validtxnlist", "eventid", "scheduledexecutionid",
}  # fmt: skip


class Proto:
    """Hive's messages as any client of Python makes them."""

    def __init__(self) -> None:
        pool = DescriptorPool()
        pools.add_to(pool, pools.HIVES)
        self.methods = pool.FindServiceByName(f"{pools.hives().package}.{SERVICE}").methods_by_name

    def request(self, name: str, fields: dict[str, Any], words: dict[str, str]) -> bytes:
        text = json.dumps(fields)
        for word, value in words.items():
            text = text.replace("{" + word + "}", value)
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
    elif value:
        yield name, spelt(value, enum)


def spelt(value: Any, enum: Any) -> str:
    if enum is not None:
        return plain(f"{enum.__name__}{enum(value).name}")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    text = str(value)
    return plain(text) if text.isupper() else text


def field_counts(value: Any, *, named: bool, ignored: set[str]) -> Counter[tuple[str, str]]:
    return Counter(
        (name if named else "", text.replace(OURS, THEIRS))
        for name, text in leaves(value, "")
        if name not in ignored
    )


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


def thrift_apart(settings: MetastoreSettings, name: str, request: bytes) -> tuple[str, Any]:
    with MetastoreClient(settings) as client:
        return thrift(client, name, request)


class Judge:
    """Makes each call by the stub and by Thrift, each with a database of its own, and notes differences."""

    def __init__(self, stub: JavaStub, proto: Proto, client: MetastoreClient, warehouse: Path) -> None:
        self._stub, self._proto, self._client = stub, proto, client
        self._theirs, self._ours = (
            {"db": database, "warehouse": str(warehouse)} for database in (THEIRS, OURS)
        )
        self._begun: dict[str, Future[tuple[str, Any]]] = {}
        self.answered: set[str] = set()
        self.differing: list[str] = []

    def begin(self, name: str, fields: dict[str, Any], executor: Executor) -> None:
        """Begin both calls of a later step, which depends on no other one."""
        self._stub.begin(name, self._proto.request(name, fields, self._theirs))
        request = self._proto.request(name, fields, self._ours)
        self._begun[name] = executor.submit(thrift_apart, self._client.settings, name, request)

    def step(self, name: str, fields: dict[str, Any]) -> None:
        got = self._stub.call(name, self._proto.request(name, fields, self._theirs))
        if name in self._begun:
            exception, value = self._begun.pop(name).result()
        else:
            exception, value = thrift(self._client, name, self._proto.request(name, fields, self._ours))
        if exception != OK:
            if got.code == "OK" or got.exception != exception:
                self._differs(f"{name}: {got.code} {got.text!r}, by Thrift {exception} {value!r}")
        elif got.code != "OK":
            self._differs(f"{name}: {got.code} {got.text!r}, by Thrift it answers")
        else:
            self.answered.add(name)
            response = self._proto.response(name, got.data)
            ignored = MOVING | LOST
            if name in CAPTURED:
                word, field = CAPTURED[name]
                self._theirs[word], self._ours[word] = number(response, field), number(value, field)
                ignored = ignored | {short(field), ""}
            self._compare(name, response, value, has_names(value), ignored)
        if ACCESS[method_of(name)] is not Access.READ:
            self._compare_states(name)

    def _compare_states(self, name: str) -> None:
        """Compare the states of the two databases that reads by Thrift show after a change."""
        reads = next(reads for pattern, reads in SHOWN if re.search(pattern, name))
        for read, fields in reads:
            (theirs_ended, theirs), (ours_ended, ours) = (
                thrift(self._client, read, self._proto.request(read, fields, words))
                for words in (self._theirs, self._ours)
            )
            if theirs_ended != ours_ended:
                self._differs(
                    f"{name}, shown by {read}: {theirs_ended} {theirs}, by Thrift {ours_ended} {ours}"
                )
            elif theirs_ended == OK:
                self._compare(f"{name}, shown by {read}", theirs, ours, True, MOVING)

    def _compare(self, call: str, theirs: Any, ours: Any, named: bool, ignored: set[str]) -> None:
        ones, others = (
            field_counts(without_aborted(value), named=named, ignored=ignored) for value in (theirs, ours)
        )
        if ones != others:
            self._differs(f"{call}: only by gRPC {ones - others}, only by Thrift {others - ones}")

    def _differs(self, text: str) -> None:
        self.differing.append(text)


def has_names(value: Any) -> bool:
    """Return whether the answer's fields have names on both sides; those of a list of strings have none."""
    return isinstance(value[0] if isinstance(value, list) and value else value, Struct)


def without_aborted(value: Any) -> Any:
    """Leave out aborted transactions, which the metastore removes some day, perhaps between two answers."""
    if isinstance(value, types.GetOpenTxnsInfoResponse):
        lasting = [txn for txn in value.open_txns or () if txn.state != types.TxnState.ABORTED]
        return types.GetOpenTxnsInfoResponse(txn_high_water_mark=value.txn_high_water_mark, open_txns=lasting)
    if isinstance(value, dict) and "txn_high_water_mark" in value:
        lasting = [
            txn
            for txn in value.get("open_txns", ())
            if not (isinstance(txn, dict) and "ABORTED" in txn.get("state", ""))
        ]
        return {**value, "open_txns": lasting}
    return value


def method_of(name: str) -> str:
    known = rpc(name)
    assert known is not None
    return known.method


def number(answer: Any, field: str) -> str:
    return next(value for name, value in leaves(answer, "") if name in {short(field), ""})


def test_every_answer_is_that_of_thrift(
    stub: JavaStub, proto: Proto, client: MetastoreClient, tmp_path: Path
) -> None:
    for database in (THEIRS, OURS):
        (tmp_path / database).mkdir()
    judge = Judge(stub, proto, client, tmp_path)
    before = set(open_transactions(client.get_open_txns()))
    with ThreadPoolExecutor(len(RETRIED)) as executor:
        for name, fields in (*STEPS, *OTHER_STEPS):
            if name in RETRIED:
                judge.begin(name, fields, executor)
        for name, fields in (*STEPS, *OTHER_STEPS):
            judge.step(name, fields)
    # Open for minutes, they would hold up the cleaner of other tests.
    if still_open := sorted(set(open_transactions(client.get_open_txns())) - before):
        client.abort_txns(still_open)
    assert not judge.differing, "\n".join(judge.differing)
    assert {name for name, _ in (*STEPS, *OTHER_STEPS)} - judge.answered == UNANSWERED


def test_the_steps_are_all_rpcs_with_a_counterpart() -> None:
    # The last two are of one connection: the gateway keeps them to itself, or refuses them.
    apart = {*WITHOUT, "SetUgi", "SetMetaConf"}
    assert {name for name, _ in (*STEPS, *OTHER_STEPS)} == set(rpc_names()) - apart


def test_calls_without_counterpart_are_unimplemented(stub: JavaStub, proto: Proto) -> None:
    for name in WITHOUT:
        got = stub.call(name, proto.request(name, {}, {}))
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
    read = stub.call("GetTableReq", proto.request("GetTableReq", names, {}))
    changed = proto.response("GetTableReq", read.data)["table"]
    changed["parameters"]["comment"] = "new"
    request = {"db_name": "narrow", "table_name": "t", "table": changed}
    got = stub.call("AlterTableReq", proto.request("AlterTableReq", request, {}))
    assert (got.code, got.text) == ("OK", "")
    table = client.get_table("narrow", "t")
    assert (table.parameters or {})["comment"] == "new"
    assert table.owner == "alice"
    assert table.sd is not None
    assert table.sd.serdeInfo is not None
    assert table.sd.serdeInfo.deserializerClass == "org.D"
