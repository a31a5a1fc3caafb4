"""Events as real Hive wrote them (``golden/events.json``), in both formats, and what is wrong with others."""

from __future__ import annotations

import base64
import gzip
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.errors import EventCorruptError
from airflow_hive_federation.metastore.idl.types import NotificationEvent
from airflow_hive_federation.model import event_messages
from airflow_hive_federation.model import events as ev
from airflow_hive_federation.model.event_messages import GZIP_FORMAT, JSON_FORMAT, decode_message, read_event
from airflow_hive_federation.model.kept_files import kept_files

GOLDEN = Path(__file__).parents[2] / "golden" / "events.json"
CAPTURED: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))


def wire(values: dict[str, Any], *, zipped: bool = False) -> NotificationEvent:
    fields = {name: value for name, value in values.items() if name != "sql"}
    if zipped:
        fields["message"] = base64.b64encode(gzip.compress(fields["message"].encode())).decode()
        fields["messageFormat"] = GZIP_FORMAT
    return NotificationEvent(eventTime=0, **fields)


def made(kind: str, message: Any = "{}", *, table: str | None = "t", form: str = JSON_FORMAT) -> Any:
    text = message if isinstance(message, str) else json.dumps(message)
    return NotificationEvent(
        eventId=7, eventTime=0, eventType=kind, dbName="DB", tableName=table, message=text, messageFormat=form
    )


def parse_event(raw: Any) -> ev.Event:
    """Make an event of a wire ``NotificationEvent``.

    :raises EventCorruptError: its message cannot be read, or lacks what its type has.
    """
    event = read_event(raw)
    if isinstance(event, ev.UnreadableEvent):
        raise event.error()
    return event


def of_type(kind: str) -> list[ev.Event]:
    return [parse_event(wire(event)) for event in CAPTURED if event["eventType"] == kind]


@pytest.mark.parametrize("values", CAPTURED, ids=lambda event: f"{event['eventId']}-{event['eventType']}")
def test_every_captured_event_is_known_in_both_formats(values: dict[str, Any]) -> None:
    event = parse_event(wire(values))
    assert not isinstance(event, ev.UnknownEvent)
    assert (event.event_id, event.event_type) == (values["eventId"], values["eventType"])
    assert parse_event(wire(values, zipped=True)) == event


def test_renames_and_truncations_are_distinguished_from_other_alterations() -> None:
    altered = [event for event in of_type("ALTER_TABLE") if isinstance(event, ev.TableAltered)]
    renamed = [event for event in altered if event.renamed]
    assert [(event.old_table, event.table) for event in renamed] == [("t", "t2")]
    assert any(event.truncated for event in altered)
    assert any(not event.truncated and not event.renamed for event in altered)


def test_partitions_that_are_gone_are_named() -> None:
    (renamed,) = of_type("ALTER_PARTITION")
    (dropped,) = of_type("DROP_PARTITION")
    assert isinstance(renamed, ev.PartitionsChanged)
    assert isinstance(dropped, ev.PartitionsChanged)
    assert (renamed.gone, dropped.gone) == (("d=c",), ("d=e",))
    partition = json.dumps({"1": {"lst": ["str", 2, "a b", "c=d"]}})
    message = {"keyValues": {"k": "a b", "L": "c=d"}, "partitionObjBeforeJson": partition}
    altered = parse_event(made("ALTER_PARTITION", {**message, "partitionObjAfterJson": partition}))
    assert isinstance(altered, ev.PartitionsChanged)
    assert altered.gone == ()
    other = json.dumps({"1": {"lst": ["str", 2, "a b", "e"]}})
    altered = parse_event(made("ALTER_PARTITION", {**message, "partitionObjAfterJson": other}))
    assert isinstance(altered, ev.PartitionsChanged)
    assert altered.gone == ("k=a b/l=c%3Dd",)


def test_partitions_that_were_changed_are_named() -> None:
    changed = [
        event
        for event_type in ("ADD_PARTITION", "ALTER_PARTITIONS", "ALTER_PARTITION", "DROP_PARTITION")
        for event in of_type(event_type)
        if isinstance(event, ev.PartitionsChanged)
    ]
    assert [event.named for event in changed] == [
        ("d=b", "d=a"),
        ("d=a", "d=b"),
        ("d=a",),
        ("d=c", "d=e"),
        ("d=e",),
    ]
    unnamed = parse_event(made("ALTER_PARTITIONS", {}))
    assert isinstance(unnamed, ev.PartitionsChanged)
    assert unnamed.named is None


def test_statistics_name_their_partition() -> None:
    (described,) = of_type("UPDATE_PART_COL_STAT_EVENT")
    (of_table,) = of_type("UPDATE_TBL_COL_STAT_EVENT")
    deleted = parse_event(made("DELETE_PART_COL_STAT_EVENT", {}))
    assert isinstance(described, ev.StatisticsChanged)
    assert isinstance(of_table, ev.StatisticsChanged)
    assert isinstance(deleted, ev.StatisticsChanged)
    assert (described.named, of_table.named, deleted.named) == (("d=b",), (), None)
    without = parse_event(made("UPDATE_PART_COL_STAT_EVENT", {"partVals": ["b"]}))
    assert isinstance(without, ev.StatisticsChanged)
    assert without.named is None


@pytest.mark.parametrize(("flag", "truncated"), [("true", ("k=a b/l=c",)), ("false", ())])
def test_partitions_that_were_truncated_are_named(flag: str, truncated: tuple[str, ...]) -> None:
    message = {"partitions": [{"k": "a b", "L": "c"}], "isTruncateOp": flag}
    event = parse_event(made("ALTER_PARTITIONS", message))
    assert isinstance(event, ev.PartitionsChanged)
    assert (event.truncated, event.gone) == (truncated, ())
    partition = json.dumps({"1": {"lst": ["str", 2, "a b", "c"]}})
    common = {"keyValues": {"k": "a b", "L": "c"}, "isTruncateOp": flag}
    both = {"partitionObjBeforeJson": partition, "partitionObjAfterJson": partition}
    event = parse_event(made("ALTER_PARTITION", {**common, **both}))
    assert isinstance(event, ev.PartitionsChanged)
    assert (event.truncated, event.gone) == (truncated, ())


@pytest.mark.parametrize(
    ("message", "overwritten"),
    [
        ({"replace": "true", "ptnObjJson": None, "files": []}, True),
        ({"replace": "false", "ptnObjJson": None, "files": []}, False),
        # Of a partition.
        ({"replace": "true", "ptnObjJson": "{}", "files": []}, False),
        ({"files": []}, False),
    ],
)
def test_a_table_that_was_overwritten(message: dict[str, Any], overwritten: bool) -> None:
    event = parse_event(made("INSERT", message))
    assert isinstance(event, ev.Inserted)
    assert event.overwritten is overwritten


def test_transactions_and_write_ids() -> None:
    assert ev.TxnsOpened(event_id=3, event_type="OPEN_TXN", first=1, last=1) in of_type("OPEN_TXN")
    ends = [*of_type("COMMIT_TXN"), *of_type("ABORT_TXN")]
    assert {event.committed for event in ends if isinstance(event, ev.TxnEnded)} == {True, False}
    (first, *_) = of_type("ALLOC_WRITE_ID_EVENT")
    assert isinstance(first, ev.WriteIdsAllocated)
    assert (first.database, first.table, first.write_ids) == ("ev", "t", ((2, 1),))


def test_write_ids_of_hive_3_whose_heading_has_a_space_for_the_table() -> None:
    message = {"dbName": "db", "tableName": "T", "txnIdList": [4], "writeIdList": [1]}
    event = parse_event(made("ALLOC_WRITE_ID_EVENT", message, table=" "))
    assert isinstance(event, ev.WriteIdsAllocated)
    assert (event.database, event.table, event.write_ids) == ("db", "t", ((4, 1),))
    # Without a table in either, the whole database is compared anew.
    without = read_event(made("ALLOC_WRITE_ID_EVENT", {"txnIdList": [4], "writeIdList": [1]}, table=" "))
    assert isinstance(without, ev.UnreadableEvent)
    assert without.table == ""


def test_a_foreign_key_belongs_to_the_table_that_has_it() -> None:
    (key,) = of_type("ADD_FOREIGNKEY")
    assert isinstance(key, ev.ConstraintsChanged)
    assert key.table == "f"


def test_functions_by_either_message() -> None:
    events = [*of_type("CREATE_FUNCTION"), *of_type("DROP_FUNCTION")]
    assert {event.function for event in events if isinstance(event, ev.FunctionEvent)} == {"shout"}


def test_types_that_no_statement_wrote_here() -> None:
    written = parse_event(made("ACID_WRITE", {"txnid": 3, "writeId": 4}))
    assert isinstance(written, ev.AcidWritten)
    assert (written.database, written.table, written.txn_id, written.write_id) == ("db", "t", 3, 4)
    assert isinstance(parse_event(made("COMMIT_COMPACTION_EVENT")), ev.Compacted)
    whole = parse_event(made("COMMIT_COMPACTION_EVENT", {"type": "MAJOR", "partName": None}))
    assert isinstance(whole, ev.Compacted)
    assert (whole.partition, whole.rebalanced) == ("", False)
    part = parse_event(made("COMMIT_COMPACTION_EVENT", {"type": "REBALANCE", "partName": "P=a%3ab/q= c"}))
    assert isinstance(part, ev.Compacted)
    assert (part.partition, part.rebalanced) == ("p=a%3Ab/q= c", True)
    assert isinstance(parse_event(made("RELOAD")), ev.Reloaded)
    assert isinstance(parse_event(made("CREATE_DATACONNECTOR", table=None)), ev.OtherEvent)
    assert isinstance(parse_event(made("OF_THE_FUTURE", "?")), ev.UnknownEvent)
    opened = parse_event(made("OPEN_TXN", {"txnIds": [5, 6], "fromTxnId": 0, "toTxnId": 0}))
    assert isinstance(opened, ev.TxnsOpened)
    assert (opened.first, opened.last) == (5, 6)


def test_a_message_is_an_object() -> None:
    with pytest.raises(ValueError, match="the message is no JSON object"):
        decode_message("[]", None)


@pytest.mark.parametrize(
    "raw",
    [
        made("COMMIT_TXN", "not JSON"),
        made("COMMIT_TXN", "[]"),
        made("COMMIT_TXN", {}),
        made("COMMIT_TXN", {"txnid": "x"}),
        made("COMMIT_TXN", {"txnid": 1}, form="json-9"),
        made("COMMIT_TXN", "no base64!", form=GZIP_FORMAT),
        made("COMMIT_TXN", base64.b64encode(b"no gzip").decode(), form=GZIP_FORMAT),
        made(
            "COMMIT_TXN",
            base64.b64encode(gzip.compress(b"{}")[:-4]).decode(),
            form=GZIP_FORMAT,
        ),
        made("ALTER_TABLE", {"tableObjBeforeJson": "{}"}),
        made("ALLOC_WRITE_ID_EVENT", {"txnIdList": [1, 2], "writeIdList": [1]}),
        made("CREATE_TABLE", table=None),
        made("ADD_FOREIGNKEY", {"foreignKeyListJson": []}),
        made("ALTER_TABLE", {"tableObjBeforeJson": '{["str",1,"x":"file:/"}'}),
        made("ALTER_TABLE", "[" * 1_000_000),
        made("CREATE_FUNCTION", {"functionName": 7}),
    ],
    ids=range(15),
)
def test_what_cannot_be_read_is_named(raw: NotificationEvent) -> None:
    with pytest.raises(EventCorruptError, match="event 7") as caught:
        parse_event(raw)
    assert pickle.loads(pickle.dumps(caught.value)).event_id == 7
    # Its heading stands outside of its message.
    event = read_event(raw)
    assert isinstance(event, ev.UnreadableEvent)
    assert (event.event_type, event.database, event.table) == (raw.eventType, "db", raw.tableName or "")


def test_a_message_that_unpacks_to_gigabytes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = base64.b64encode(gzip.compress(b'{"txnid": 1}' + b" " * 10_000)).decode()
    raw = made("COMMIT_TXN", packed, form=GZIP_FORMAT)
    assert isinstance(read_event(raw), ev.TxnEnded)
    monkeypatch.setattr(event_messages, "_LONGEST_MESSAGE", 10_000)
    event = read_event(raw)
    assert isinstance(event, ev.UnreadableEvent)
    assert "10000 bytes" in event.reason


def test_a_list_bucketed_table_is_read() -> None:
    """Hive writes where its skewed values lie as a map with lists for keys."""
    skewed = '{"11":{"rec":{"3":{"map":["lst","str",1,{["str",1,"484"]:"file:/w/t/k=484"}]}}}}'
    table = f'{{"1":{{"str":"Two"}},"2":{{"str":"Db"}},"7":{{"rec":{skewed}}}}}'
    altered = read_event(made("ALTER_TABLE", {"tableObjBeforeJson": table}, table="two"))
    assert isinstance(altered, ev.TableAltered)
    assert (altered.old_database, altered.old_table, altered.renamed) == ("db", "two", False)
    before, after = (f'{{"1":{{"lst":["str",1,"{value}"]}},"6":{{"rec":{skewed}}}}}' for value in "ab")
    message = {"keyValues": {"d": "a"}, "partitionObjBeforeJson": before, "partitionObjAfterJson": after}
    renamed = read_event(made("ALTER_PARTITION", message))
    assert isinstance(renamed, ev.PartitionsChanged)
    assert renamed.gone == ("d=a",)


def test_where_the_change_manager_keeps_the_files_of_an_event() -> None:
    long = "x" * 250
    files = [
        "file:/w/t/delta_2/bucket_00000_0#abc#file:/cmroot#delta_2]file:/w/t/delta_3/bucket_00001_0#d#hdfs://n/c/#",
        f"file:/w/t/{long}#abcdef#file:/cmroot#",
        "file:/w/t/unknown####",
        "file:/w/t/no_root#abc##",
    ]
    assert kept_files(files) == (
        ("file:/w/t/delta_2/bucket_00000_0", "file:/cmroot/bucket_00000_0_abc"),
        ("file:/w/t/delta_3/bucket_00001_0", "hdfs://n/c/bucket_00001_0_d"),
        (f"file:/w/t/{long}", f"file:/cmroot/{long}_abc"),
    )
    event = parse_event(made("INSERT", {"files": files[:1]}))
    assert [uri for uri, _ in event.kept] == [uri for uri, _ in kept_files(files[:1])]


@pytest.mark.parametrize("place", ["dbName", "tableName", "eventType", "messageFormat", "message"])
def test_a_heading_that_is_no_text_is_an_event_like_others(place: str) -> None:
    raw = made("COMMIT_TXN", {"txnid": 1})
    setattr(raw, place, b"\xff")
    event = read_event(raw)
    assert event.event_id == 7
    if place in {"dbName", "eventType"}:
        assert r"\xff" in (event.database if place == "dbName" else event.event_type)


def test_a_table_whose_name_is_no_text_is_named_where_its_event_cannot_be_read() -> None:
    raw = made("DROP_PARTITION", "[]")
    raw.tableName = b"\xff"
    event = read_event(raw)
    assert isinstance(event, ev.UnreadableEvent)
    assert event.table == r"\xff"


@pytest.mark.parametrize("number", ["1e999", "Infinity", "NaN", "[]", '"x"', "9" * 5000])
def test_numbers_that_are_none_are_unreadable(number: str) -> None:
    for kind, message in (
        ("COMMIT_TXN", f'{{"txnid":{number}}}'),
        ("OPEN_TXN", f'{{"fromTxnId":{number},"toTxnId":1}}'),
        ("ALLOC_WRITE_ID_EVENT", f'{{"txnIdList":[1],"writeIdList":[{number}]}}'),
    ):
        assert isinstance(read_event(made(kind, message)), ev.UnreadableEvent), message


@pytest.mark.parametrize("form", [JSON_FORMAT, GZIP_FORMAT, None])
def test_messages_of_more_values_or_levels_than_there_may_be(form: str | None) -> None:
    for text in ("[" * 200_000, '{"txnid":[' + "[]," * 1_100_000 + "1]}"):
        message = base64.b64encode(gzip.compress(text.encode())).decode() if form == GZIP_FORMAT else text
        raw = made("COMMIT_TXN", message)
        raw.messageFormat = form
        event = read_event(raw)
        assert isinstance(event, ev.UnreadableEvent)
        assert "deep" in event.reason or "more than" in event.reason
