"""Defines a replication policy: the database to replicate, the target, and the limits of a cycle."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.durations import duration_s
from airflow_hive_federation.waiting import PATIENCE_S, PollPolicy

if TYPE_CHECKING:
    from airflow_hive_federation.storage.options import StorageOptions
    from airflow_hive_federation.storage.sources import SourceRoots

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_TABLE_NAME = re.compile(r"\w+")
_STORE_ROOT = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:(//[^/]*)?)?/*")

#: Hive's settings, and the policy's field that each of them sets.
HIVE_OPTIONS = {
    "hive.repl.bootstrap.dump.open.txn.timeout": "open_txn_timeout_s",
    "hive.repl.replica.external.table.base.dir": "external_base",
    "hive.repl.externaltable.snapshotdiff.copy": "external_snapshots",
    "hive.repl.replica.functions.root.dir": "functions_root",
    "hive.repl.rootdir": "dump_root",
    "hive.exec.parallel.thread.number": "parallel_copies",
    "hive.repl.approx.max.load.tasks": "max_load_tasks",
}
#: A drain looks for open transactions at these intervals: most of them end soon.
DRAIN_POLL = PollPolicy(first_s=0.2, factor=1.5, longest_s=2.0, patience_s=PATIENCE_S)
#: This many loaded dumps are kept although nothing refers to them: for inspection, and because they name the
#: changes of cycles that were not verified.
KEPT_DUMPS = 10
#: ``preserve`` accepts these letters.
PRESERVABLE = "ugpa"
#: These fields are true or false.
FLAGS = frozenset({"into_existing", "external_authority", "external_snapshots", "preserve_strictly"})
#: These fields are whole numbers of at least one.
COUNTS = frozenset({"bandwidth_bytes_per_s", "parallel_copies", "max_load_tasks"})
#: These fields are whole numbers from 0 up to the given highest value, if they have one.
BOUNDS: Mapping[str, int | None] = {"max_unexplained_tables": None, "max_unexplained_percent": 100}


@dataclass(frozen=True, kw_only=True)
class ReplicationPolicy:
    """The rules by which one database is replicated from one metastore to another.

    :param name: names the policy in the target's parameters, in dump directories and in Airflow's task group.
    :param source_database: database to replicate.
    :param target_database: its name on the target; the same by default.
    :param include_tables: regular expression that the whole names of tables and views to replicate match, as
        in Hive's ``REPL DUMP db.'<regex>'``; all by default.
    :param exclude_tables: regular expression of tables and views that are not replicated even if they match
        ``include_tables``.
    :param table_names: names of tables on the target, by their names on the source; the same by default.
    :param dump_root: URI of a directory that both sides and Spark can reach; each dump gets a directory below
        it.
    :param external_base: URI of the directory under which external tables land: ``/ext_loc/x`` of the source
        becomes ``<external_base>/ext_loc/x``. Required if external tables exist
        (``hive.repl.replica.external.table.base.dir``).
    :param external_prefix: URI of a directory of the source that the target's paths omit:
        ``<external_prefix>/x`` becomes ``<external_base>/x``. For the way back after a failover, see
        :meth:`reversed`.
    :param external_authority: the store of an external table is a directory below ``external_base``:
        ``s3a://a/x`` becomes ``<external_base>/a/x``, and a local file's store is ``file``. Required if
        external tables of one policy lie in several stores.
    :param external_snapshots: copy external tables from snapshots of their directories on HDFS, and find
        their changed files by comparing snapshots (``hive.repl.externaltable.snapshotdiff.copy``).
    :param functions_root: URI of the directory that receives the jars of permanent functions, in one
        directory per policy (``hive.repl.replica.functions.root.dir``); ``<dump_root>/functions`` by default.
    :param open_txn_timeout_s: seconds that the bootstrap waits for transactions open at its start before it
        aborts them (``hive.repl.bootstrap.dump.open.txn.timeout``; Hive's default is one hour); accepts text
        as Hive writes it (``30s``, ``1h``).
    :param bandwidth_bytes_per_s: cap on the copy job as a whole; ``None`` is no cap.
    :param parallel_copies: highest number of files copied at once (``hive.exec.parallel.thread.number``);
        ``None`` is as many as Spark has room for.
    :param max_load_tasks: highest number of Spark tasks in the copy job
        (``hive.repl.approx.max.load.tasks``); ``None`` is no bound.
    :param preserve: attributes that copies keep from their sources if the stores have them, in the letters of
        ``distcp -p``: owner (``u``), group (``g``), permissions (``p``) and, on HDFS, access list (``a``). By
        default a copy belongs to the copy job's user, and its mode is the source's less that user's umask.
    :param preserve_strictly: the load fails if the copy job may not set an owner, group or mode; otherwise
        these cases are counted and logged.
    :param into_existing: adopt a target database that exists and has no marker of a policy.
    :param max_unexplained_tables: highest number of tables that one cycle may drop although neither an event
        of the source nor the policy accounts for their removal; with 0, the cycle stops.
    :param max_unexplained_percent: highest percentage of a table's partitions, and of its files, that one
        cycle may remove although no event accounts for their removal and their directories hold nothing; with
        0, the cycle stops.
    :param allowed_source_roots: URIs of the directories from which tables, links in their directories, and
        jars of functions may be copied; ``s3://`` is every bucket. An empty list allows the stores that
        machines share (HDFS, object stores), and no local disk (``file:``). The environment variable
        ``HIVE_FEDERATION_SOURCE_ROOTS`` of a worker bounds it. A failover's way back has the same roots.
    :param group: name of the consistency group to which the policy belongs, see
        :class:`~.group_policy.ReplicationGroup`; its cycles then run for the whole group only.
    :param storage_options: storage options (fsspec).
    :raises ConfigurationError: an impossible value.
    """

    name: str
    source_database: str
    target_database: str = ""
    dump_root: str
    external_base: str | None = None
    external_prefix: str | None = None
    external_authority: bool = False
    external_snapshots: bool = False
    functions_root: str | None = None
    open_txn_timeout_s: float = 3600.0
    bandwidth_bytes_per_s: int | None = None
    parallel_copies: int | None = None
    max_load_tasks: int | None = None
    preserve: str = ""
    preserve_strictly: bool = True
    into_existing: bool = False
    max_unexplained_tables: int = 0
    max_unexplained_percent: int = 0
    include_tables: str = ""
    exclude_tables: str = ""
    table_names: Mapping[str, str] = field(default_factory=dict)
    allowed_source_roots: Sequence[str] = ()
    group: str = ""
    storage_options: StorageOptions = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} cannot name a replication policy.",
                remedy="Use letters, digits, '_', '-' and '.', beginning with a letter or digit.",
            )
        if self.group and not _NAME.fullmatch(self.group):
            raise ConfigurationError(
                f"Policy {self.name!r}: {self.group!r} cannot name a consistency group.",
                remedy="Use letters, digits, '_', '-' and '.', beginning with a letter or digit.",
            )
        for setting in ("source_database", "dump_root"):
            if not getattr(self, setting):
                raise ConfigurationError(f"Policy {self.name!r} has no {setting}.", remedy=f"Set {setting}.")
        for setting in ("include_tables", "exclude_tables"):
            _check_pattern(self.name, setting, getattr(self, setting))
        for setting in COUNTS:
            _check_count(self.name, setting, getattr(self, setting))
        for setting, highest in BOUNDS.items():
            _check_bound(self.name, setting, getattr(self, setting), highest)
        if set(self.preserve) - set(PRESERVABLE):
            raise ConfigurationError(
                f"Policy {self.name!r}: preserve is {self.preserve!r}.",
                remedy=f"Give letters of {PRESERVABLE}: owner, group, permissions, access list (of HDFS).",
            )
        # A rendered template yields text.
        object.__setattr__(self, "open_txn_timeout_s", duration_s(str(self.open_txn_timeout_s)))
        object.__setattr__(self, "source_database", self.source_database.lower())
        object.__setattr__(self, "target_database", (self.target_database or self.source_database).lower())
        object.__setattr__(self, "dump_root", self.dump_root.rstrip("/"))
        object.__setattr__(self, "table_names", _table_names(self.name, self.table_names))
        object.__setattr__(self, "allowed_source_roots", _source_roots(self.name, self.allowed_source_roots))

    @property
    def directory(self) -> str:
        """Return the URI of the directory that holds this policy's dumps."""
        return f"{self.dump_root}/{self.name}"

    @property
    def functions_directory(self) -> str:
        """Return the URI of the directory for the jars of this policy's functions, and of no other's."""
        return f"{self.root_of_functions}/{self.name}"

    @property
    def root_of_functions(self) -> str:
        """Return the URI of the directory that receives the jars of functions of several policies."""
        return (self.functions_root or f"{self.dump_root}/functions").rstrip("/")

    @property
    def sources(self) -> SourceRoots:
        """Return the roots from which this process may copy for the policy.

        :raises ConfigurationError: a root lies outside of those that the worker's administrator allows.
        """
        from airflow_hive_federation.storage.sources import SourceRoots

        return SourceRoots.of(self.allowed_source_roots)

    def target_table(self, source_table: str) -> str:
        """Return the name on the target of a table of the source."""
        name = source_table.lower()
        return self.table_names.get(name, name)

    def source_table(self, target_table: str) -> str:
        """Return the name on the source of a table of the target."""
        return next(
            (source for source, target in self.table_names.items() if target == target_table), target_table
        )

    def replicates(self, target_table: str) -> bool:
        """Return whether the policy replicates a table or view, by its name on the target.

        The patterns match names on the source.
        """
        table = self.source_table(target_table)
        included = not self.include_tables or re.fullmatch(self.include_tables, table, re.IGNORECASE)
        excluded = self.exclude_tables and re.fullmatch(self.exclude_tables, table, re.IGNORECASE)
        return bool(included and not excluded)

    def reversed(self, external_root: str | None = None) -> ReplicationPolicy:
        """Return the policy of the way back after a failover; a second reversal returns this policy again.

        External tables return to their former directories, so ``external_base`` and ``external_prefix``
        change places. If the policy has no prefix, the root of the source's store takes the place of the
        prefix.

        :param external_root: URI of the root of the store that holds the source's external tables:
            ``file:/``, ``hdfs://namenode:8020/``.
        :raises ConfigurationError: patterns select tables that have other names on the target, or the policy
            keeps external tables of several stores apart.
        """
        if self.external_authority:
            raise ConfigurationError(
                f"Policy {self.name!r} has external_authority, so its external tables may come from several "
                "stores. It has no reverse, because a policy writes external tables into one store only.",
                remedy="To fail over, replicate the tables of each store by a policy of its own "
                "(include_tables), without external_authority.",
                policy=self.name,
            )
        if self.table_names and (self.include_tables or self.exclude_tables):
            raise ConfigurationError(
                f"Policy {self.name!r} chooses tables by patterns of their names on the source, and gives "
                "some of them other names. There is no way back, because the patterns do not match the names "
                "on the target.",
                remedy="To fail over, remove table_names, or remove include_tables and exclude_tables.",
            )
        suffix = ".reversed"
        back = self.name.endswith(suffix)
        return replace(
            self,
            name=self.name.removesuffix(suffix) if back else f"{self.name}{suffix}",
            source_database=self.target_database,
            target_database=self.source_database,
            external_base=self.external_prefix or (self.external_base and external_root),
            external_prefix=None if is_store_root(self.external_base) else self.external_base,
            table_names={target: source for source, target in self.table_names.items()},
            # Tables that the policy leaves out stay in place, among them views that cannot be rewritten.
            into_existing=bool(self.include_tables or self.exclude_tables or self.table_names),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the policy as plain values, without storage options (they may hold secrets)."""
        values = asdict(self)
        del values["storage_options"]
        values["allowed_source_roots"] = list(self.allowed_source_roots)
        return values

    @classmethod
    def from_options(cls, *, options: Mapping[str, str], **fields: Any) -> ReplicationPolicy:
        """Build a policy from fields and from settings under Hive's own names (``hive.repl.*``).

        :raises ConfigurationError: an option this package does not know.
        """
        for key, value in options.items():
            if key not in HIVE_OPTIONS:
                raise ConfigurationError(
                    f"The option {key!r} is not known to a replication policy.",
                    remedy=f"Known ones are {', '.join(sorted(HIVE_OPTIONS))}.",
                )
            setting = HIVE_OPTIONS[key]
            fields[setting] = _option(setting, value)
        return cls(**fields)


def _source_roots(policy: str, given: Sequence[str]) -> tuple[str, ...]:
    # A single text may be meant as a list: as a sequence, each of its characters would become a root.
    roots = [given] if isinstance(given, str) else list(given)
    if not all(isinstance(root, str) for root in roots):
        raise ConfigurationError(
            f"Policy {policy!r}: allowed_source_roots is {given!r}.", remedy="Give a list of URIs."
        )
    if not roots:
        return ()
    # DAG files import this module, which must stay light.
    from airflow_hive_federation.storage.sources import checked_roots

    return checked_roots(roots, f"allowed_source_roots of policy {policy!r}")


def is_store_root(uri: str | None) -> bool:
    """Return whether a URI is the root of its store; as a prefix, such a root omits nothing."""
    return uri is not None and bool(_STORE_ROOT.fullmatch(uri))


def _table_names(policy: str, given: Mapping[str, str]) -> dict[str, str]:
    names = {str(source).lower(): str(target).lower() for source, target in dict(given).items()}
    invalid = [name for pair in names.items() for name in pair if not _TABLE_NAME.fullmatch(name)]
    repeated = [name for name, count in Counter(names.values()).items() if count > 1]
    if invalid or repeated:
        raise ConfigurationError(
            f"Policy {policy!r}: table_names has "
            + (f"{invalid[0]!r}, which is no name of a table." if invalid else f"{repeated[0]!r} twice."),
            remedy="Give tables of the source one name each: letters, digits and '_'.",
        )
    return {source: target for source, target in names.items() if source != target}


def _option(name: str, value: str) -> object:
    if name in COUNTS:
        # The policy's own check names a value that is no number.
        return int(value) if value.strip().isdecimal() else value
    if name in FLAGS:
        return {"true": True, "false": False}.get(value.strip().lower(), value)
    return duration_s(value) if name.endswith("_s") else value


def _check_count(policy: str, which: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise ConfigurationError(
            f"Policy {policy!r}: {which} is {value!r}.", remedy="Give a whole number, one at least."
        )


def _check_bound(policy: str, which: str, value: object, highest: int | None) -> None:
    if not isinstance(value, int) or value < 0 or (highest is not None and value > highest):
        raise ConfigurationError(
            f"Policy {policy!r}: {which} is {value!r}.",
            remedy=f"Give a whole number from 0 {'on' if highest is None else f'to {highest}'}.",
        )


def _check_pattern(policy: str, which: str, pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigurationError(
            f"Policy {policy!r}: {which} is no regular expression: {error}.",
            remedy="Write it as for Hive: orders|order_items, tmp_.*",
        ) from error
