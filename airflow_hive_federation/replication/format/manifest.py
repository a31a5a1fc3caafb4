"""Defines the manifest of a dump: its event, its tables, and the digests of its files. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_hive_federation.model import json_values
from airflow_hive_federation.model.json_values import Fields, JsonObject
from airflow_hive_federation.replication.format import values
from airflow_hive_federation.replication.format.dumped_policy import DumpedPolicy
from airflow_hive_federation.replication.format.kinds import DumpKind, TableKind, TableWork

#: This number is raised when an older reader would misread a newer dump.
FORMAT_VERSION = 2
#: Versions that this one reads: dumps of the first describe each changed table as a whole.
READABLE_VERSIONS = (1, FORMAT_VERSION)

#: A manifest may hold this many values: a few for each of its tables and files, and names of partitions that
#: go.
MAX_MANIFEST_VALUES = 20_000_000

#: The write ids of open transactions: transaction → table → write id.
OpenWrites = Mapping[int, Mapping[str, int]]

_KIND = json_values.one_of(TableKind)
_WORK = json_values.one_of(TableWork)
_TABLE_NAMES = json_values.list_of(values.table_name)
_PARTITION_NAMES = json_values.list_of(values.partition_name)
_DUMPS = json_values.list_of(values.location)
_OPEN_WRITES = json_values.list_of(
    json_values.pair_of(json_values.whole, json_values.map_of(values.table_name, json_values.whole))
)


class UnknownFormatError(ValueError):
    """The error for a manifest of another version of the format.

    :param version: the version that it names.
    """

    def __init__(self, version: object) -> None:
        super().__init__(f"it has format {version}")
        self.version = version


@dataclass(frozen=True, kw_only=True)
class TableChanges:
    """The changes of a table in the increment that changed it last.

    :param seed: highest write id with which a new table starts.
    :param writes: number of write ids to replay.
    :param renewed: partitions whose names stood for others on the target.
    :param gone: partitions that the source no longer has and whose removal an event records.
    :param concerned: partitions that may have changed, those that are gone included; ``None`` for all.
    """

    seed: int = 0
    writes: int = 0
    renewed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    concerned: tuple[str, ...] | None = None

    def to_json(self) -> JsonObject:
        return {
            "seed": self.seed,
            "writes": self.writes,
            "renewed": list(self.renewed),
            "gone": list(self.gone),
            **({} if self.concerned is None else {"concerned": list(self.concerned)}),
        }


_CHANGES = ("seed", "writes", "renewed", "gone", "concerned")


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """The entry of a table in a manifest.

    :param partitions: number of its partitions.
    :param files: number of its files.
    :param reached: highest write id of the target's table after the load; 0 for tables without.
    :param partition_names: digest of the names of its partitions.
    :param dump: URI of the dump that describes the table; empty for the dump of the manifest itself.
    :param work: the work of an increment on the table; ``None`` in a bootstrap, which creates each.
    :param recorded_changes: ``None`` if a bootstrap described the table last.
    :param rest: URIs of the earlier dumps that describe the partitions which that dump does not describe, the
        latest first: each describes the partitions that its own cycle concerned, and the last one all others.
        None if the dump describes the whole table.
    :param unsettled: partitions with statistics or files of transactions that were open: their ends change
        these partitions without another event.
    """

    name: str
    kind: TableKind
    partitions: int = 0
    files: int = 0
    size_bytes: int = 0
    reached: int = 0
    partition_names: str = ""
    dump: str = ""
    work: TableWork | None = None
    recorded_changes: TableChanges | None = None
    rest: tuple[str, ...] = ()
    unsettled: tuple[str, ...] = ()

    @property
    def is_changed(self) -> bool:
        """Return whether the dump of the manifest describes the table, because its cycle works on it."""
        return self.work is not TableWork.NOTHING

    @property
    def described(self) -> frozenset[str] | None:
        """Return the partitions that the table's dump describes; ``None`` for all of them."""
        return frozenset(self.changes.concerned or ()) if self.rest else None

    @property
    def changes(self) -> TableChanges:
        """Return the changes of the table in the increment that changed it last."""
        return self.recorded_changes or TableChanges()

    @classmethod
    def from_json(cls, value: object) -> TableEntry:
        """Read an entry.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        changes = TableChanges(
            seed=fields.optional("seed", json_values.count, default=0),
            writes=fields.optional("writes", json_values.count, default=0),
            renewed=fields.optional("renewed", _PARTITION_NAMES, default=()),
            gone=fields.optional("gone", _PARTITION_NAMES, default=()),
            concerned=fields.optional("concerned", json_values.or_none(_PARTITION_NAMES), default=None),
        )
        rest = fields.optional("rest", _DUMPS, default=())
        if rest and changes.concerned is None:
            raise ValueError("rest: it refers to other dumps for partitions, and concerns all of them")
        return cls(
            name=fields.needed("name", values.table_name),
            kind=fields.needed("kind", _KIND),
            partitions=fields.optional("partitions", json_values.count, default=0),
            files=fields.optional("files", json_values.count, default=0),
            size_bytes=fields.optional("size_bytes", json_values.count, default=0),
            reached=fields.optional("reached", json_values.count, default=0),
            partition_names=fields.optional("partition_names", json_values.text, default=""),
            dump=fields.optional("dump", values.location, default=""),
            work=fields.optional("work", _WORK, default=None),
            recorded_changes=changes if any(name in fields for name in _CHANGES) else None,
            rest=rest,
            unsettled=fields.optional("unsettled", _PARTITION_NAMES, default=()),
        )

    def to_json(self) -> JsonObject:
        return {
            "name": self.name,
            "kind": self.kind.value,
            "partitions": self.partitions,
            "files": self.files,
            "size_bytes": self.size_bytes,
            "reached": self.reached,
            "partition_names": self.partition_names,
            **({"dump": self.dump} if self.dump else {}),
            **({"work": self.work.value} if self.work else {}),
            **(self.recorded_changes.to_json() if self.recorded_changes else {}),
            **({"rest": list(self.rest)} if self.rest else {}),
            **({"unsettled": list(self.unsettled)} if self.unsettled else {}),
        }


@dataclass(frozen=True, kw_only=True)
class SourceEvent:
    """The record that identifies one event of a source.

    :param id: its number.
    :param time: its time, in seconds since 1970.
    :param message: digest of its message.
    """

    id: int
    time: int
    type: str
    message: str

    @classmethod
    def from_json(cls, value: object) -> SourceEvent:
        """Read a record.

        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        return cls(
            id=fields.needed("id", json_values.count),
            time=fields.needed("time", json_values.whole),
            type=fields.needed("type", json_values.text),
            message=fields.needed("message", json_values.text),
        )

    def to_json(self) -> JsonObject:
        return {"id": self.id, "time": self.time, "type": self.type, "message": self.message}


@dataclass(frozen=True, kw_only=True)
class RepairPlan:
    """The repairs that a cycle makes in addition to bringing changes of the source.

    :param tables: tables that are examined whether or not events name them.
    :param replaced: those of them that are copied anew, as a whole.
    :param files: canonical URIs of the target's files that differ from their copies: files that belong there
        are copied again over the present ones; the others are removed.
    :param database: properties of the database differ, or functions; any cycle corrects these.
    """

    tables: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    database: bool = False

    def __bool__(self) -> bool:
        return bool(self.tables) or self.database

    @classmethod
    def from_json(cls, value: object) -> RepairPlan:
        """Read a plan.

        :raises ValueError: a field has another type.
        """
        fields = Fields(value)
        return cls(
            tables=frozenset(fields.optional("tables", _TABLE_NAMES, default=())),
            replaced=frozenset(fields.optional("replaced", _TABLE_NAMES, default=())),
            files=frozenset(fields.optional("files", json_values.list_of(values.location), default=())),
            database=fields.optional("database", json_values.flag, default=False),
        )

    def to_json(self) -> JsonObject:
        return {
            "tables": sorted(self.tables),
            "replaced": sorted(self.replaced),
            "files": sorted(self.files),
            "database": self.database,
        }


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of a dump. A bootstrap's lacks the fields that only an increment has.

    :param policy: the policy by which the dump was written.
    :param event_id: last event that the target has after the load.
    :param lease: the source's transaction that holds its cleaner back; 0 for none.
    :param last_event: the record of that event; ``None`` if the source had forgotten the event.
    :param adopted: tables that the target held before this policy owned it; they carry no marker.
    :param skipped: the tables of the source that are not replicated, each with the reason.
    :param partitions: number of all partitions.
    :param files: digest of each file of the dump, by its path.
    :param dumped_files: number of all files of tables (of a bootstrap).
    :param size_bytes: their size (of a bootstrap).
    :param from_id: last event that the target has before the load (of an increment, as all below).
    :param previous: URI of the dump from which the target was last loaded.
    :param begun: URIs of the dumps whose load had begun; the dump allows for what killed loads did.
    :param events: number of events in between.
    :param transactions: number of transactions that ended.
    :param open_writes: write ids of transactions that have not ended.
    :param functions_changed: permanent functions were created or dropped.
    :param lost: events were missing, so every table was examined.
    :param unreadable: messages of events that cannot be read.
    :param repair_plan: the repairs that the load makes.
    :param retained: those of the skipped tables whose earlier replica the target keeps.
    :param dropped: tables that the target loses.
    :param functions_gone: functions whose drop an event records.
    """

    kind: DumpKind
    policy: DumpedPolicy
    event_id: int
    lease: int
    tables: tuple[TableEntry, ...] = ()
    last_event: SourceEvent | None = None
    adopted: tuple[str, ...] = ()
    skipped: Mapping[str, str] = field(default_factory=dict)
    partitions: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    dumped_files: int = 0
    size_bytes: int = 0
    from_id: int = 0
    previous: str = ""
    begun: tuple[str, ...] = ()
    events: int = 0
    transactions: int = 0
    open_writes: OpenWrites = field(default_factory=dict)
    functions_changed: bool = False
    lost: bool = False
    unreadable: tuple[str, ...] = ()
    repair_plan: RepairPlan = RepairPlan()
    retained: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    functions_gone: tuple[str, ...] = ()

    @property
    def is_increment(self) -> bool:
        return self.kind is DumpKind.INCREMENT

    @property
    def changed_tables(self) -> list[TableEntry]:
        """Return the tables that the dump itself describes; for a bootstrap, these are all tables."""
        return [entry for entry in self.tables if entry.is_changed]

    @classmethod
    def from_json(cls, value: object) -> Manifest:
        """Read a manifest.

        :raises UnknownFormatError: it has another version of the format.
        :raises ValueError: a field is missing, or has another type.
        """
        fields = Fields(value)
        version = fields.optional("format", _anything, default=None)
        if version not in READABLE_VERSIONS:
            raise UnknownFormatError(version)
        manifest = cls(
            kind=fields.needed("kind", json_values.one_of(DumpKind)),
            policy=fields.needed("policy", DumpedPolicy.from_json),
            event_id=fields.needed("event_id", json_values.count),
            lease=fields.needed("lease", json_values.count),
            tables=fields.needed("tables", json_values.list_of(TableEntry.from_json)),
            last_event=fields.optional(
                "last_event", json_values.or_none(SourceEvent.from_json), default=None
            ),
            adopted=fields.optional("adopted", _TABLE_NAMES, default=()),
            skipped=fields.optional("skipped", _reasons, default={}),
            partitions=fields.optional("partitions", json_values.count, default=0),
            files=fields.needed("files", json_values.map_of(values.path, values.digest)),
            dumped_files=fields.optional("dumped_files", json_values.count, default=0),
            size_bytes=fields.optional("size_bytes", json_values.count, default=0),
        )
        return _with_increment(manifest, fields) if manifest.is_increment else manifest

    def to_json(self) -> JsonObject:
        last_event = self.last_event.to_json() if self.last_event else None
        shared = {
            "format": FORMAT_VERSION,
            "kind": self.kind.value,
            "policy": self.policy.to_json(),
            "event_id": self.event_id,
            "lease": self.lease,
            "tables": [entry.to_json() for entry in self.tables],
            "last_event": last_event,
            "adopted": list(self.adopted),
            "skipped": dict(self.skipped),
            "partitions": self.partitions,
            "files": dict(sorted(self.files.items())),
        }
        if not self.is_increment:
            return {**shared, "dumped_files": self.dumped_files, "size_bytes": self.size_bytes}
        return {
            **shared,
            "from_id": self.from_id,
            "previous": self.previous,
            "begun": list(self.begun),
            "events": self.events,
            "transactions": self.transactions,
            "open_writes": [[txn, dict(writes)] for txn, writes in sorted(self.open_writes.items())],
            "functions_changed": self.functions_changed,
            "lost": self.lost,
            "unreadable": list(self.unreadable),
            "mend": self.repair_plan.to_json(),
            "retained": list(self.retained),
            "dropped": list(self.dropped),
            "functions_gone": list(self.functions_gone),
        }


@dataclass(frozen=True, kw_only=True)
class FinishedLoad:
    """The acknowledgement that a dump is loaded and published.

    :param database: the database into which it was loaded.
    :param event_id: last event of the database; ``None`` if it has not been recorded.
    :param adopted: the database had all tables before, as the former source of a failover.
    """

    database: str
    event_id: int | None = None
    adopted: bool = False

    @classmethod
    def from_json(cls, value: object) -> FinishedLoad:
        """Read an acknowledgement.

        :raises ValueError: a field is missing, or has another type, or the name leads elsewhere.
        """
        fields = Fields(value)
        return cls(
            database=fields.needed("database", values.name),
            event_id=fields.optional("event_id", json_values.count, default=None),
            adopted=fields.optional("adopted", json_values.flag, default=False),
        )

    def to_json(self) -> JsonObject:
        return {
            "database": self.database,
            **({} if self.event_id is None else {"event_id": self.event_id}),
            **({"adopted": True} if self.adopted else {}),
        }


def _with_increment(manifest: Manifest, fields: Fields) -> Manifest:
    return replace(
        manifest,
        from_id=fields.needed("from_id", json_values.count),
        previous=fields.needed("previous", values.location),
        begun=fields.optional("begun", json_values.list_of(values.location), default=()),
        events=fields.optional("events", json_values.count, default=0),
        transactions=fields.optional("transactions", json_values.count, default=0),
        open_writes=dict(fields.optional("open_writes", _OPEN_WRITES, default=())),
        functions_changed=fields.optional("functions_changed", json_values.flag, default=False),
        lost=fields.optional("lost", json_values.flag, default=False),
        unreadable=fields.optional("unreadable", json_values.list_of(json_values.text), default=()),
        repair_plan=fields.optional("mend", RepairPlan.from_json, default=RepairPlan()),
        retained=fields.optional("retained", _TABLE_NAMES, default=()),
        dropped=fields.optional("dropped", _TABLE_NAMES, default=()),
        functions_gone=fields.optional("functions_gone", json_values.list_of(values.name), default=()),
    )


def _reasons(value: object) -> Mapping[str, str]:
    # Earlier versions recorded only the names for increments.
    return {} if isinstance(value, list) else json_values.map_of(json_values.text, json_values.text)(value)


def _anything(value: object) -> object:
    return value
