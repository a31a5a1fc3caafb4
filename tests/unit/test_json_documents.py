"""Every document of JSON or text that the package writes and reads is read as it was written.

The documents are found in the sources: a class with ``to_json`` or ``from_json`` and the like, and a function
that reads :class:`Fields`. So a new one fails here until it has an entry.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_hive_federation import errors
from airflow_hive_federation.clusters import keeping
from airflow_hive_federation.clusters.advice_records import StatementRecord, TableRead, record_from_json
from airflow_hive_federation.clusters.metadata import (
    ClusterMetadata,
    Secondary,
    SourceMark,
    read_metadata,
    write_metadata,
)
from airflow_hive_federation.clusters.notes import Note
from airflow_hive_federation.clusters.registry import Cluster, ClusterRegistry, read_registry
from airflow_hive_federation.compaction.merge import MergeOutcome
from airflow_hive_federation.compaction.plan import BucketMerge, CompactedTable, FileFormat
from airflow_hive_federation.embedded import database
from airflow_hive_federation.hooks.probes import ProbeAnswer
from airflow_hive_federation.ingest.inputs import Position
from airflow_hive_federation.ingest.queries import KeyPosition
from airflow_hive_federation.metastore import MetastoreSettings
from airflow_hive_federation.metastore.grpc_wire import Answer, Question
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.trace_context import PARENT, STATE
from airflow_hive_federation.model.files import CopyItem, CopyOutcome
from airflow_hive_federation.model.json_values import reader_of
from airflow_hive_federation.model.write_ids import ValidTxns, ValidWriteIds
from airflow_hive_federation.orc.properties import BloomFilters
from airflow_hive_federation.progress.reading import event_classes, event_of
from airflow_hive_federation.published import documents as published
from airflow_hive_federation.published.clusters import (
    ClusterRoutes,
    DatabaseTables,
    read_database_tables,
    read_routes,
)
from airflow_hive_federation.published.remotes import RemoteState, read_remote
from airflow_hive_federation.published.work import (
    CompactionState,
    IngestState,
    read_compaction,
    read_ingest,
)
from airflow_hive_federation.remotes.links import Link, link_of
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.replication.dump.drain import DrainStart
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.files import CopiedFile, PlacedTime, VisibleFile
from airflow_hive_federation.replication.format.group_lines import GroupMember
from airflow_hive_federation.replication.format.job_records import PlannedDirectory, SidePlan, SideRows
from airflow_hive_federation.replication.format.manifest import (
    FinishedLoad,
    Manifest,
    RepairPlan,
    SourceEvent,
    TableEntry,
)
from airflow_hive_federation.replication.format.tables import (
    EndedTransaction,
    PartitionLine,
    PartitionTotals,
    TableDocument,
    read_write,
)
from airflow_hive_federation.replication.groups.dump import GroupDump
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.repair import RepairProgress
from airflow_hive_federation.replication.replica import dumps_owner, external_claims
from airflow_hive_federation.replication.replica.cycle_history import CycleRecord, read_cycles, with_cycle
from airflow_hive_federation.replication.replica.differences import Difference
from airflow_hive_federation.replication.replica.external_roots import ExternalRoots, read_roots, with_roots
from airflow_hive_federation.spark import runs
from airflow_hive_federation.spark.failures import error_from_json, error_to_json
from airflow_hive_federation.spark.streaming_sink import HiveStreamingSink, StreamPosition
from airflow_hive_federation.storage import unfinished_uploads
from airflow_hive_federation.storage.fence import TICKET, Fence, fence_of, write_ticket
from airflow_hive_federation.storage.plan_files import read_records, write_records
from airflow_hive_federation.tables.read.acid_description import (
    DescribedDirectory,
    DescribedRead,
    DescribedTable,
)
from tests.support import dump_documents as dumps
from tests.support.made_values import made

PACKAGE = Path(__file__).parents[2] / "airflow_hive_federation"
WRITERS = {"to_json", "to_text", "to_bytes"}
READERS = {"from_json", "from_text", "from_bytes"}
HOME = Path("/home/metastore")
SINK = HiveStreamingSink(MetastoreSettings(uris=("thrift://localhost:1",)), "d.t", name="s")
POLICY = ReplicationPolicy(
    name="p", source_database="d", dump_root="file:/dumps", external_base="file:/external"
)

texts, counts, wholes = dumps.texts, dumps.counts, dumps.wholes
words, locations = dumps.words, dumps.locations


@dataclasses.dataclass(frozen=True, kw_only=True)
class Document:
    """A document: its values, its writer, and the reader of what was written.

    ``never_none`` names optional fields that no writer leaves out, or that depend on other fields.
    """

    values: st.SearchStrategy[Any]
    read: Callable[[Any], Any]
    write: Callable[[Any], Any] = lambda value: value.to_json()
    never_none: tuple[str, ...] = ()


def a_file(
    values: st.SearchStrategy[Any],
    write: Callable[[str, Any], object],
    read: Callable[[str], Any],
    *,
    name: str = "document",
    never_none: tuple[str, ...] = (),
) -> Document:
    """The document that is a file: functions of the package write and read the file of a URI."""

    def written(value: Any) -> bytes:
        with tempfile.TemporaryDirectory() as directory:
            write(f"file:{directory}/{name}", value)
            return Path(directory, name).read_bytes()

    def read_again(content: bytes) -> Any:
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, name).write_bytes(content)
            return read(f"file:{directory}/{name}")

    return Document(values=values, write=written, read=read_again, never_none=never_none)


def records_of(kind: type[Any], **fields: st.SearchStrategy[Any]) -> Document:
    """The document of a class whose instances are lines of plans and outcomes."""
    return a_file(
        made(kind, **fields),
        lambda uri, value: write_records(uri, [value]),
        lambda uri: next(iter(read_records(uri, kind))),
    )


def plain(kind: Any, read: Callable[[Any], Any]) -> Document:
    return Document(values=made(kind), write=dataclasses.asdict, read=read)


ids = st.lists(st.integers(1, 99), unique=True, max_size=4).map(lambda some: tuple(sorted(some)))
valid_ids = {
    "high_watermark": st.integers(100, 1 << 62),
    "open_ids": ids,
    "aborted_ids": ids,
    "min_open_id": st.none() | st.integers(1, 99),
}
write_id_lists = st.builds(ValidWriteIds, table=st.none() | words, **valid_ids)
txn_lists = st.builds(ValidTxns, **valid_ids)
directories = st.builds(
    DescribedDirectory,
    location=locations,
    values=dumps.a_few(texts),
    storage=st.none() | dumps.storages,
    content=st.none() | texts,
)
reads = made(DescribedRead, write_ids=write_id_lists, txns=txn_lists, directories=dumps.a_few(directories))
keys = st.integers() | st.decimals(allow_nan=False) | st.dates() | st.datetimes() | texts
copied_tables = made(TableRead, table=st.builds("{}.{}".format, words, words))
event_values = st.one_of(*(made(kind) for kind in event_classes().values()))
members = made(GroupMember, policy=words, dump=locations)
marks = made(SourceMark, metadata=words, content=words, listing=words)
secondaries = made(
    Secondary, location=words, source=marks, former=st.none() | words, snapshot=st.none() | write_id_lists
)
traces = st.sampled_from(
    [
        (),
        ((PARENT, f"00-{'a' * 32}-{'b' * 16}-01"),),
        ((PARENT, f"00-{'a' * 32}-{'b' * 16}-01"), (STATE, "x=y")),
    ]
)
linked = Name(database="d", table="t")


def the_position(text: str) -> Any:
    return keeping._position(types.Table(parameters={f"{keeping.POSITION}c": text}), "c")


def the_record(content: str) -> Any:
    with tempfile.TemporaryDirectory() as directory:
        database._record_file(Path(directory), "mariadb").write_text(content, encoding="utf-8")
        record = database._record(Path(directory))
        return record and dataclasses.replace(record, server=HOME / record.server.name)


def as_claim(value: external_claims._Written) -> external_claims._Written:
    return dataclasses.replace(value, roots=tuple(sorted(set(value.roots or ()))))


#: The documents by the class that is written, or the function that reads it.
DOCUMENTS: Mapping[str, Document] = {
    "clusters.advice_records.StatementRecord": Document(
        values=made(StatementRecord, reads=dumps.a_few(copied_tables)),
        read=lambda value: record_from_json(json.dumps(value)),
    ),
    "clusters.keeping._position": Document(values=made(keeping._Position), write=str, read=the_position),
    "clusters.metadata.ClusterMetadata": Document(
        values=made(
            ClusterMetadata,
            primary=st.none() | words,
            next_primary=st.none() | words,
            secondaries=dumps.maps(words, secondaries),
        ),
        write=lambda value: write_metadata({}, value),
        read=lambda parameters: read_metadata(parameters, "t"),
    ),
    "clusters.notes.Note": Document(
        values=made(Note, files=st.none() | dumps.maps(texts, st.tuples(counts, counts))),
        read=Note.from_json,
    ),
    "clusters.registry.ClusterRegistry": Document(
        values=st.builds(
            lambda metastore, first, use: ClusterRegistry(
                {
                    "A": Cluster(name="A", root="hdfs://a:8020/a", spark_conn_id="s", metastore=metastore),
                    "B": Cluster(name="B", root="s3a://b/b", spark_conn_id="t"),
                },
                "A" if first else "B",
                use,
            ),
            st.none() | st.just("thrift://m:9083"),
            st.booleans(),
            st.booleans(),
        )
        | st.just(ClusterRegistry()),
        read=lambda value: read_registry(value, origin="o"),
        never_none=("default",),
    ),
    "compaction.plan.BucketMerge": Document(
        values=made(
            BucketMerge,
            table=made(CompactedTable, filters=made(BloomFilters), file_format=made(FileFormat)),
        ),
        read=BucketMerge.from_json,
    ),
    "embedded.database._record": Document(
        values=made(database._Record, kind=st.just("mariadb"), server=words.map(lambda name: HOME / name)),
        write=lambda record: record.text(HOME),
        read=the_record,
    ),
    "spark.compact.MergeOutcome": plain(MergeOutcome, reader_of(MergeOutcome)),
    "hooks.probes.ProbeAnswer": Document(
        values=made(ProbeAnswer, state=event_values, value=st.none() | dumps.maps(texts, counts)),
        read=ProbeAnswer.from_json,
    ),
    "ingest.inputs.Position": Document(
        values=made(Position).map(lambda at: dataclasses.replace(at, uri="file:/arrived/ü 1.csv")),
        write=Position.to_text,
        read=Position.of,
    ),
    "ingest.queries.KeyPosition": Document(
        values=st.builds(KeyPosition, columns=st.just(("a", "b")), values=st.tuples(keys, keys)),
        write=KeyPosition.to_text,
        read=lambda text: KeyPosition.of(text, ["a", "b"]),
    ),
    "metastore.grpc_wire.Answer": Document(
        values=st.builds(Answer, st.binary(max_size=300))
        | made(Answer, message=st.just(b""), code=st.integers(1, 16)),
        write=Answer.to_bytes,
        read=Answer.from_bytes,
    ),
    "metastore.grpc_wire.Question": Document(
        values=st.builds(Question, st.binary(max_size=300), st.integers(0, 1 << 40), traces),
        write=Question.to_bytes,
        read=Question.from_bytes,
    ),
    "model.files.CopyItem": records_of(
        CopyItem,
        source=locations,
        target=locations,
        kept=st.none() | locations,
        moved_from=st.none() | locations,
    ),
    "model.files.CopyOutcome": records_of(CopyOutcome, target=locations),
    "model.write_ids.ValidTxns": Document(values=txn_lists, write=ValidTxns.text, read=ValidTxns.parse),
    "model.write_ids.ValidWriteIds": Document(
        values=write_id_lists, write=ValidWriteIds.text, read=ValidWriteIds.parse
    ),
    "progress.events.Event": Document(values=event_values, read=event_of),
    **{
        f"published.documents.{kind.__name__}": Document(
            values=made(kind), write=published.versioned, read=read
        )
        for kind, read in (
            (published.PolicyPosition, published.read_position),
            (published.PolicyTables, published.read_tables),
            (published.PolicyCycles, published.read_cycles),
            (published.PolicyVerification, published.read_verification),
            (published.VerifiedTables, published.read_verified),
        )
    },
    "published.clusters.DatabaseTables": Document(
        values=made(DatabaseTables), write=published.versioned, read=read_database_tables
    ),
    "published.clusters.ClusterRoutes": Document(
        values=made(ClusterRoutes), write=published.versioned, read=read_routes
    ),
    "published.work.IngestState": Document(
        values=made(IngestState), write=published.versioned, read=read_ingest
    ),
    "published.work.CompactionState": Document(
        values=made(CompactionState), write=published.versioned, read=read_compaction
    ),
    "published.remotes.RemoteState": Document(
        values=made(RemoteState), write=published.versioned, read=read_remote
    ),
    "remotes.links.Link": Document(
        values=made(
            Link,
            kind=st.just(Kind.TABLE),
            local=st.just(linked),
            remote=st.just(linked),
            via=st.just("thrift"),
            properties=dumps.maps(texts, texts),
            member=st.just(False),
            path=dumps.a_few(words),
        ),
        write=Link.parameters,
        never_none=("via",),
        read=lambda parameters: link_of(Kind.TABLE, linked, parameters),
    ),
    "replication.dump.drain.DrainStart": Document(values=made(DrainStart), read=DrainStart.from_json),
    "replication.format.dumped_policy.DumpedPolicy": Document(
        values=dumps.policies.map(DumpedPolicy.of),
        read=DumpedPolicy.from_json,
        never_none=("external_base", "external_prefix"),
    ),
    "replication.format.files.CopiedFile": Document(
        values=made(CopiedFile, uri=locations, digest=dumps.digests), read=CopiedFile.from_json
    ),
    "replication.format.files.PlacedTime": Document(
        values=made(PlacedTime, uri=locations, modified_ns=wholes), read=PlacedTime.from_json
    ),
    "replication.format.files.VisibleFile": Document(values=dumps.files(), read=VisibleFile.from_json),
    "replication.format.group_lines.GroupMember": Document(values=members, read=GroupMember.from_json),
    "replication.format.job_records.PlannedDirectory": Document(
        values=dumps.planned_directories, read=PlannedDirectory.from_json
    ),
    "replication.format.job_records.SidePlan": Document(values=dumps.sides, read=SidePlan.from_json),
    "replication.format.job_records.SideRows": Document(
        values=dumps.rows | dumps.unreadable_rows, read=SideRows.from_json, never_none=("unreadable",)
    ),
    "replication.format.manifest.FinishedLoad": Document(
        values=made(FinishedLoad, database=dumps.names), read=FinishedLoad.from_json
    ),
    "replication.format.manifest.Manifest": Document(
        values=dumps.bootstraps | dumps.increments, read=Manifest.from_json
    ),
    "replication.format.manifest.RepairPlan": Document(values=dumps.repair_plans, read=RepairPlan.from_json),
    "replication.format.manifest.SourceEvent": Document(
        values=made(SourceEvent, time=wholes), read=SourceEvent.from_json
    ),
    "replication.format.manifest.TableEntry": Document(
        values=dumps.entries, read=TableEntry.from_json, never_none=("recorded_changes",)
    ),
    "replication.format.tables.EndedTransaction": Document(
        values=made(EndedTransaction), write=list, read=EndedTransaction.from_json
    ),
    "replication.format.tables.PartitionLine": Document(
        values=st.builds(PartitionLine.of, dumps.partitions, dumps.wire_partitions),
        read=PartitionLine.from_json,
        never_none=("created_s",),
    ),
    "replication.format.tables.PartitionTotals": Document(
        values=made(PartitionTotals, name=dumps.partitions, elsewhere=st.just("") | locations),
        write=list,
        read=PartitionTotals.from_json,
    ),
    "replication.format.tables.TableDocument": Document(values=dumps.documents, read=TableDocument.from_json),
    "replication.format.tables.read_write": Document(
        values=st.tuples(wholes, wholes), write=list, read=read_write
    ),
    "replication.groups.dump.GroupDump": Document(
        values=made(GroupDump, members=st.lists(members, max_size=2)),
        write=dataclasses.asdict,
        read=GroupDump.from_json,
    ),
    "replication.repair.RepairProgress": Document(
        values=made(
            RepairProgress,
            seen=st.lists(made(Difference), max_size=2),
            repaired=st.sets(words, max_size=2),
            replaced=st.sets(words, max_size=2),
            dumps=st.lists(words, max_size=2),
        ),
        read=RepairProgress.from_json,
    ),
    "replication.replica.cycle_history.CycleRecord": Document(
        values=made(CycleRecord),
        write=lambda record: with_cycle({}, record),
        read=lambda parameters: read_cycles(parameters)[0],
    ),
    "replication.replica.dumps_owner._Written": a_file(
        made(dumps_owner._Written),
        lambda uri, claim: dumps_owner._write(uri, claim, POLICY, private=False),
        lambda uri: dumps_owner._read(uri, POLICY),
    ),
    "replication.replica.external_claims._read": a_file(
        made(external_claims._Written, roots=dumps.a_few(dumps.digests.map("file:/{}".format))).map(as_claim),
        lambda uri, claim: external_claims._write(uri, claim, POLICY),
        lambda uri: external_claims._read(uri, POLICY),
        never_none=("roots",),
    ),
    "replication.repair.Difference": plain(Difference, reader_of(Difference)),
    "replication.replica.external_roots.read_roots": Document(
        values=made(
            ExternalRoots,
            uris=st.frozensets(dumps.digests.map("file:/{}".format), min_size=1, max_size=40).map(
                lambda uris: tuple(sorted(uris))
            ),
        ),
        write=lambda roots: with_roots({}, roots),
        read=lambda parameters: read_roots("d", parameters),
    ),
    "spark.failures.error_from_json": Document(
        values=st.builds(
            errors.StorageError, texts, remedy=texts, path=texts, size_bytes=counts, other=st.none()
        ),
        write=error_to_json,
        read=error_from_json,
    ),
    "spark.runs.JobClaim": plain(runs.JobClaim, runs._CLAIM),
    "spark.runs.JobRun": plain(runs.JobRun, runs._RUN),
    "spark.streaming_sink.StreamPosition": plain(
        StreamPosition, lambda value: SINK._position(json.dumps(value))
    ),
    "storage.fence.fence_of": a_file(
        st.builds(Fence, uri=texts, epoch=counts),
        lambda uri, fence: write_ticket(uri.rpartition("/")[0], fence.uri, fence.epoch),
        fence_of,
        name=TICKET,
    ),
    "storage.unfinished_uploads.Upload": a_file(
        made(unfinished_uploads.Upload),
        lambda uri, value: Path(uri.removeprefix("file:")).write_text(
            json.dumps(dataclasses.asdict(value)), encoding="utf-8"
        ),
        lambda uri: unfinished_uploads._read(uri, None),
    ),
    "tables.read.acid_description.DescribedDirectory": Document(
        values=directories, read=DescribedDirectory.from_json
    ),
    "tables.read.acid_description.DescribedRead": Document(values=reads, read=DescribedRead.from_json),
    "tables.read.acid_description.DescribedTable": Document(
        values=made(DescribedTable, table=dumps.tables, reads=dumps.a_few(reads)),
        read=DescribedTable.from_json,
    ),
}
#: The parts of a document that are found in the sources, by the document that writes or reads them.
PARTS = {
    "published.clusters.PlacedCopy": "published.clusters.DatabaseTables",
    "published.clusters.PlacedTable": "published.clusters.DatabaseTables",
    "published.clusters.PublishedRoute": "published.clusters.ClusterRoutes",
    "published.work.QueuedCompaction": "published.work.CompactionState",
    "published.work.FinishedCompaction": "published.work.CompactionState",
    "published.documents.PolicyName": "published.documents.PolicyPosition",
    "published.documents.Publisher": "published.documents.PolicyPosition",
    "published.documents.LagPoint": "published.documents.PolicyPosition",
    "published.documents.LaggingTable": "published.documents.PolicyTables",
    "published.documents.PublishedCycle": "published.documents.PolicyCycles",
    "published.documents.VerifiedTable": "published.documents.VerifiedTables",
    "published.documents.reading_version": "published.documents.PolicyPosition",
    "clusters.advice_records._read_from_json": "clusters.advice_records.StatementRecord",
    "clusters.advice_records.record_from_json": "clusters.advice_records.StatementRecord",
    "spark.compact._from_json": "spark.compact.MergeOutcome",
    "spark.failures.read_report": "spark.failures.error_from_json",
    "compaction.plan.CompactedTable": "compaction.plan.BucketMerge",
    "compaction.plan.MergeInput": "compaction.plan.BucketMerge",
    "compaction.plan._filters": "compaction.plan.BucketMerge",
    "replication.format.manifest.TableChanges": "replication.format.manifest.TableEntry",
    "replication.format.tables._location": "replication.format.tables.PartitionLine",
}
#: The documents that the package only writes, or only reads, each with the reason.
ONE_WAY = {
    "embedded.metastore._announced": "the launcher of the metastore writes announcements",
    "acid.markers._is_marked_compacted": "Hive 3's compactor writes the markers",
    "clusters.running.RoutedStatement": "the result of a task",
    "gateway.check.Sight": "an answer of the command line",
    "gateway.services.codec.Codec": "a translation, with tests of its own in test_services_codec",
    "hooks.probes.Probe": "fields of a trigger, which probe_of passes to the class again",
    "ingest.dead_letters.DeadLetter": "users read dead letters",
    "model.event_messages.decode_message": "Hive writes the messages of events",
    "model.thrift_json.ThriftStruct": "Hive writes structs into its events",
    "replication.cycle_plan.CyclePlan": "an answer of the command line",
    "replication.groups.status.GroupPlan": "an answer of the command line",
    "replication.groups.status.GroupStatus": "an answer of the command line",
    "replication.policy.ReplicationPolicy": "DumpedPolicy reads it",
    "replication.status.ReplicationStatus": "an answer of the command line",
    "replication.verify.report._is_equal": "a part of the report of a verification",
    "replication.verify.report._unequal_tables": "a part of the report of a verification",
    "storage.libhdfs_client.Client._ask": "a NameNode writes its answers",
    "storage.libhdfs_client._status": "a NameNode writes the metadata of files",
    "storage.snapshots.DiffEntry": "a NameNode writes the differences of snapshots",
    "storage.snapshots.snapshot_diff": "a NameNode writes the differences of snapshots",
    "storage.webhdfs.NameNodeWeb.setting": "a NameNode writes its settings",
    "spark.run_sql.run": "a statement, whose tables DescribedTable reads",
}


def found_in(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef):
            methods = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
            if methods & (WRITERS | READERS) or {"text", "parse"} <= methods:
                yield f"{prefix}{node.name}"
            else:
                yield from found_in(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef) and any(map(reads_fields, ast.walk(node))):
            yield f"{prefix}{node.name}"
    for node in ast.walk(ast.Module(body=body, type_ignores=[])):
        # A parameter in place of a class stands for classes that are found elsewhere.
        if is_call(node, "reader_of") and (name := ast.unparse(node.args[0])) != "kind":  # type: ignore[attr-defined]
            yield f"{prefix}{name}"


def reads_fields(node: ast.AST) -> bool:
    return is_call(node, "Fields")


def is_call(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name


def test_each_document_has_an_entry() -> None:
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        # Parsing all modules takes long, so the others are skipped.
        if not module.startswith(("metastore.idl", "model.json_values")) and re.search(
            r"\b(Fields|reader_of)\(|def (to|from)_|def parse\b", source
        ):
            found.update(found_in(ast.parse(source).body, f"{module}."))
    assert found - DOCUMENTS.keys() - PARTS.keys() - ONE_WAY.keys() == set()
    assert (PARTS.keys() | ONE_WAY.keys()) - found == set()
    assert set(PARTS.values()) <= DOCUMENTS.keys()


def optional_fields(value: Any) -> list[str]:
    # The annotations of all modules are texts.
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    return [field.name for field in fields if "None" in str(field.type).split(" | ")]


def content(value: Any) -> Any:
    """The part of a value that the tests compare: errors are equal if their reports are."""
    return error_to_json(value) if isinstance(value, errors.HiveFederationError) else value


def as_stored(written: Any) -> Any:
    return written if isinstance(written, str | bytes) else json.loads(json.dumps(written, sort_keys=True))


@pytest.mark.parametrize("name", DOCUMENTS)
@settings(max_examples=25, derandomize=True)
@given(data=st.data())
def test_each_document_is_read_as_it_was_written(name: str, data: st.DataObject) -> None:
    document = DOCUMENTS[name]
    value = data.draw(document.values)
    fields = [field for field in optional_fields(value) if field not in document.never_none]
    for each in (value, *(dataclasses.replace(value, **{field: None}) for field in fields)):
        stored = as_stored(document.write(each))
        read = document.read(stored)
        assert type(read) is type(each)
        assert content(read) == content(each)
        assert as_stored(document.write(read)) == stored
