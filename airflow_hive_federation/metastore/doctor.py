"""Finds settings of a Hive metastore that keep replication from working.

:func:`collect` reads facts from the metastore, :func:`assess` turns facts into findings without any call, and
:func:`examine` does both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeVar

from airflow_hive_federation.errors import MetastoreError, UnsupportedMethodError
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.model.files import hidden_name
from airflow_hive_federation.runtime.durations import parse_duration_s

if TYPE_CHECKING:
    from airflow_hive_federation.metastore.client import MetastoreClient

T = TypeVar("T")
State = Literal["ok", "warning", "error", "unknown"]

LISTENER = "org.apache.hive.hcatalog.listener.DbNotificationListener"
TRANSACTION_MANAGER = "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager"
MIN_EVENT_TTL_S = 24 * 3600

_WAREHOUSE = "hive.metastore.warehouse.dir"
_EXTERNAL_WAREHOUSE = "hive.metastore.warehouse.external.dir"
_MINIMUM_HISTORY = "hive.txn.use.minhistorywriteid"
_ABORTS_BY_CLEANER = "hive.compactor.clean.aborts.using.cleaner"
# Settings to read; a server returns only those that begin with hive, mapred, hdfs or tez.
KEYS = (
    "hive.metastore.transactional.event.listeners",
    "hive.metastore.dml.events",
    "hive.metastore.event.db.listener.timetolive",
    "hive.repl.event.db.listener.timetolive",
    "hive.compactor.initiator.on",
    "hive.compactor.cleaner.on",
    _MINIMUM_HISTORY,
    _ABORTS_BY_CLEANER,
    "hive.txn.manager",
    "hive.support.concurrency",
    "hive.stats.fetch.bitvector",
    _WAREHOUSE,
    _EXTERNAL_WAREHOUSE,
)
_UNSET = "<unset>"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The result of one check of a metastore.

    :param name: name of the check.
    :param state: ``ok``; ``warning``: works, with a limit; ``error``: replication fails or loses something;
        ``unknown``: the server does not return the setting.
    :param detail: the observed value, and its consequence.
    :param remedy: the change to make; empty where none is needed.
    """

    name: str
    state: State
    detail: str
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Version, capabilities and settings that a metastore returned.

    :param problem: the reason why the metastore could not be called; the rest is empty then.
    :param remedy: the remedy for that problem.
    :param uri: the server that answered.
    :param version: the version that the server reports.
    :param acid_problem: the reason why the server would not create an ACID table for us; empty if it would.
    :param last_event_id: id of its last notification event; ``None`` if it keeps none.
    :param settings: values of :data:`KEYS`, without those that the server does not return.
    """

    problem: str = ""
    remedy: str = ""
    uri: str = ""
    version: str = ""
    acid_problem: str = ""
    last_event_id: int | None = None
    settings: dict[str, str] = field(default_factory=dict)


def examine(client: MetastoreClient) -> list[Finding]:
    """Check a metastore's configuration; return problems as findings instead of raising them."""
    return assess(collect(client))


def collect(client: MetastoreClient) -> Facts:
    """Read the facts that :func:`assess` needs from a metastore, without changing anything there."""
    try:
        version = client.call("getVersion")
    except MetastoreError as error:
        return Facts(problem=error.message, remedy=error.remedy)
    return Facts(
        uri=client.uri or "",
        version=version,
        acid_problem=_acid_problem(client),
        last_event_id=_try(client.get_current_notification_event_id),
        settings=_settings(client, KEYS),
    )


def examine_cleaner(client: MetastoreClient) -> list[Finding]:
    """Check whether Hive's cleaner may remove files that a reader needs or no compaction has replaced.

    :raises MetastoreError: if the metastore cannot be called.
    """
    settings = _settings(client, [_MINIMUM_HISTORY, _ABORTS_BY_CLEANER])
    facts = Facts(version=client.call("getVersion"), settings=settings)
    return [_minimum_history(facts), _aborts_by_cleaner(facts)]


def assess(facts: Facts) -> list[Finding]:
    """Turn the facts of a metastore into findings."""
    if facts.problem:
        return [Finding(name="reachable", state="error", detail=facts.problem, remedy=facts.remedy)]
    return [
        Finding(name="reachable", state="ok", detail=facts.uri),
        _version(facts),
        _capabilities(facts),
        _listener(facts),
        _switch(
            facts,
            "dml events",
            "hive.metastore.dml.events",
            "Writes to tables that are not ACID make no events, so that only comparing shows them.",
        ),
        _event_ttl(facts),
        _transaction_manager(facts),
        _switch(
            facts,
            "compactor initiator",
            "hive.compactor.initiator.on",
            "Nothing queues compactions: deltas of ACID tables pile up.",
        ),
        _switch(
            facts,
            "compactor cleaner",
            "hive.compactor.cleaner.on",
            "Nothing removes directories that compaction has replaced.",
        ),
        _minimum_history(facts),
        _aborts_by_cleaner(facts),
        _bit_vectors(facts),
        _warehouse(facts),
    ]


def _version(facts: Facts) -> Finding:
    number = facts.version.partition(".")[0]
    if not number.isdigit():
        detail = f"the metastore reports the version {facts.version!r}"
        return Finding(name="version", state="unknown", detail=detail)
    if int(number) < 4:
        return Finding(
            name="version",
            state="warning",
            # Hive 2.3 reports the version 3.0.
            detail=f"the metastore reports the version {facts.version}",
            remedy="ACID tables are replicated from Hive 3.1 and 4, and to Hive 4; others can only be read.",
        )
    return Finding(name="version", state="ok", detail=f"Hive {facts.version}")


def _capabilities(facts: Facts) -> Finding:
    if facts.acid_problem:
        return Finding(
            name="capabilities",
            state="error",
            detail=f"no ACID table can be created: {facts.acid_problem}",
            remedy="Send the ACID capabilities (the setting's default), and run Hive 4 with its default "
            "metastore.metadata.transformer.class.",
        )
    return Finding(name="capabilities", state="ok", detail="ACID tables can be created")


def _listener(facts: Facts) -> Finding:
    key = "hive.metastore.transactional.event.listeners"
    remedy = f"Set {key} to {LISTENER} (it is in hive-hcatalog-server-extensions) and restart the metastore."
    if facts.last_event_id is None:
        return Finding(
            name="notification listener", state="error", detail="events cannot be read", remedy=remedy
        )
    detail = f"last event {facts.last_event_id}"
    if LISTENER in facts.settings.get(key, ""):
        return Finding(name="notification listener", state="ok", detail=detail)
    if key in facts.settings:
        return Finding(
            name="notification listener",
            state="error",
            detail=f"{detail}, but no listener writes new ones ({key} is {facts.settings[key]!r})",
            remedy=remedy,
        )
    return Finding(name="notification listener", state="unknown", detail=detail, remedy=remedy)


def _switch(facts: Facts, name: str, key: str, consequence: str) -> Finding:
    value = facts.settings.get(key)
    if value is None:
        return Finding(name=name, state="unknown", detail=f"the server does not report {key}")
    if value.lower() == "true":
        return Finding(name=name, state="ok", detail=f"{key} is true")
    return Finding(
        name=name, state="warning", detail=f"{key} is {value}: {consequence}", remedy=f"Set {key} to true."
    )


def _event_ttl(facts: Facts) -> Finding:
    key = "hive.metastore.event.db.listener.timetolive"
    repl_key = "hive.repl.event.db.listener.timetolive"
    durations = [(name, facts.settings[name]) for name in (key, repl_key) if name in facts.settings]
    if not durations:
        return Finding(name="event ttl", state="unknown", detail=f"the server does not report {key}")
    # Databases under replication (repl.source.for) keep their events for the second, longer duration.
    seconds = [parse_duration_s(value) for _, value in durations]
    detail = ", ".join(f"{name} is {value}" for name, value in durations)
    if None in seconds:
        return Finding(name="event ttl", state="unknown", detail=detail)
    if min(second for second in seconds if second is not None) < MIN_EVENT_TTL_S:
        return Finding(
            name="event ttl",
            state="warning",
            detail=f"{detail}: a policy that pauses for longer must compare everything",
            remedy=f"Set {key} to several days.",
        )
    return Finding(name="event ttl", state="ok", detail=detail)


def _transaction_manager(facts: Facts) -> Finding:
    manager = facts.settings.get("hive.txn.manager")
    concurrency = facts.settings.get("hive.support.concurrency")
    if manager is None:
        detail = "the server does not report hive.txn.manager"
        return Finding(name="transaction manager", state="unknown", detail=detail)
    if manager == TRANSACTION_MANAGER and concurrency != "false":
        return Finding(name="transaction manager", state="ok", detail=manager)
    return Finding(
        name="transaction manager",
        state="warning",
        detail=f"hive.txn.manager is {manager}, hive.support.concurrency is {concurrency}",
        remedy=f"Set hive.txn.manager to {TRANSACTION_MANAGER} and hive.support.concurrency to true.",
    )


def _minimum_history(facts: Facts) -> Finding:
    return _cleaners_switch(
        facts,
        "cleaner beside transactions",
        _MINIMUM_HISTORY,
        fine="it waits for open transactions",
        trouble="beside an open transaction, the cleaner of Hive 4 may take committed deltas of a compacted "
        "table for aborted ones and remove them",
        remedy=f"Set {_MINIMUM_HISTORY} and metastore.txn.use.minhistorywriteid to false for metastore and "
        "Hive.",
    )


def _aborts_by_cleaner(facts: Facts) -> Finding:
    return _cleaners_switch(
        facts,
        "cleaner beside aborts",
        _ABORTS_BY_CLEANER,
        fine="files of aborted transactions are removed after a compaction",
        trouble="once 1,000 transactions on a table have aborted (hive.compactor.abortedtxn.threshold), or "
        "one has 12 hours ago, the cleaner of Hive 4 removes compacted files while readers use them",
        remedy=f"Set {_ABORTS_BY_CLEANER} and metastore.compactor.clean.aborts.using.cleaner to false for "
        "metastore and Hive.",
    )


def _cleaners_switch(facts: Facts, name: str, key: str, *, fine: str, trouble: str, remedy: str) -> Finding:
    """Return the finding for a setting of Hive 4 that is true by default and should be false."""
    value = facts.settings.get(key)
    major = facts.version.partition(".")[0]
    if value is not None and value.lower() == "false":
        return Finding(name=name, state="ok", detail=f"{key} is false: {fine}")
    if value is None and not major.isdigit():
        return Finding(name=name, state="unknown", detail=f"the server does not report {key}")
    if value is None and int(major) < 4:
        return Finding(name=name, state="ok", detail=fine)
    shown = value or "not set (true by default)"
    return Finding(name=name, state="warning", detail=f"{key} is {shown}: {trouble}", remedy=remedy)


def _warehouse(facts: Facts) -> Finding:
    locations = {
        key: facts.settings[key] for key in (_WAREHOUSE, _EXTERNAL_WAREHOUSE) if facts.settings.get(key)
    }
    if not locations:
        return Finding(name="warehouse", state="unknown", detail=f"the server does not report {_WAREHOUSE}")
    for key, location in locations.items():
        name = hidden_name(location)
        if name is not None:
            return Finding(
                name="warehouse",
                state="warning",
                detail=f"{key} is {location}: Hive reads ACID tables there as empty, because it hides paths "
                f"in which a name begins with '.' or '_', as {name!r} does",
                remedy=f"Set {key} to another directory, and move the databases that lie there.",
            )
    return Finding(name="warehouse", state="ok", detail=", ".join(dict.fromkeys(locations.values())))


def _bit_vectors(facts: Facts) -> Finding:
    key = "hive.stats.fetch.bitvector"
    value = facts.settings.get(key)
    if value is None:
        return Finding(name="statistics", state="unknown", detail=f"the server does not report {key}")
    if value.lower() == "true":
        return Finding(name="statistics", state="ok", detail="read with their bit vectors")
    return Finding(
        name="statistics",
        state="warning",
        detail=f"{key} is {value}: column statistics are read, and so replicated, without bit vectors",
        remedy=f"Set {key} to true if distinct values are to be estimated over partitions on the replica.",
    )


def _acid_problem(client: MetastoreClient) -> str:
    """Rehearse the creation of an ACID table at the server; return the reason why it fails, or no text."""
    storage = types.StorageDescriptor(
        cols=[types.FieldSchema(name="id", type="int")],
        inputFormat="org.apache.hadoop.hive.ql.io.orc.OrcInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.orc.OrcOutputFormat",
        serdeInfo=types.SerDeInfo(serializationLib="org.apache.hadoop.hive.ql.io.orc.OrcSerde"),
    )
    table = types.Table(
        dbName="default",
        tableName="hive_federation_rehearsal",
        sd=storage,
        partitionKeys=[],
        parameters={"transactional": "true"},
        tableType="MANAGED_TABLE",
    )
    request = types.CreateTableRequest(
        table=table,
        processorCapabilities=list(client.settings.capabilities),
        processorIdentifier=client.settings.identifier,
    )
    try:
        rehearsed = client.call("translate_table_dryrun", request)
    except UnsupportedMethodError:
        # Before version 4, Hive checks no capabilities; only version 3 has write ids.
        return _write_ids_problem(client, f"{table.dbName}.{table.tableName}")
    except MetastoreError as error:
        return error.message
    if rehearsed.tableType != "MANAGED_TABLE" or (rehearsed.parameters or {}).get("transactional") != "true":
        return f"the server would make it {rehearsed.tableType}"
    return ""


def _write_ids_problem(client: MetastoreClient, table: str) -> str:
    try:
        client.get_valid_write_ids([table])
    except MetastoreError as error:
        return error.message
    return ""


def _settings(client: MetastoreClient, keys: Sequence[str]) -> dict[str, str]:
    values = {key: _try(partial(client.call, "get_config_value", key, _UNSET)) for key in keys}
    return {key: value for key, value in values.items() if value not in (None, _UNSET)}


def _try(ask: Callable[[], T]) -> T | None:
    """Make a call that an older or locked-down server may refuse; return ``None`` if it does."""
    try:
        return ask()
    except MetastoreError:
        return None
