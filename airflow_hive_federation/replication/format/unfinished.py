"""Finds loads that have begun: finished ones, killed ones and running ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import canonical, join
from airflow_hive_federation.storage.listing import is_there, list_children
from airflow_hive_federation.storage.options import StorageOptions

#: A load writes this file before it copies anything.
COPY_PLAN = "load/copy_plan.jsonl"
#: A load writes this file before it drops tables and partitions to make room, thus before its copy plan.
MADE_ROOM = "load/made_room.jsonl"
#: The number of dumps that are looked into in parallel.
_THREADS = 8


def begun_loads(policy: ReplicationPolicy) -> Iterator[DumpDirectory]:
    """Yield the dumps of a policy whose load has begun to copy, whether or not it was published."""
    yield from (DumpDirectory(uri, policy.storage_options) for uri in begun_uris(policy))


def begun_uris(policy: ReplicationPolicy) -> tuple[str, ...]:
    """Return the URIs of the dumps that :func:`begun_loads` yields."""
    return _begun_below(policy.directory, policy.storage_options)


def refuse_left_behind(policy: ReplicationPolicy, loaded: str) -> None:
    """Refuse a policy whose ``dump_root`` has changed since a load of it was cut off.

    A cycle looks for such loads below the present ``dump_root``. It would take the files and write ids of
    this one for the target's own, or for those of somebody else.

    :param loaded: URI of the dump from which the target was last loaded.
    :raises ConfigurationError: a load that continues from that dump has begun at the former place.
    """
    former = loaded.rstrip("/").rpartition("/")[0]
    if canonical(former) == canonical(policy.directory):
        return
    begun = _begun_below(former, policy.storage_options)
    if left := UnfinishedLoads(policy=policy, loaded=loaded, begun=begun).dumps:
        raise ConfigurationError(
            f"Policy {policy.name!r} has another dump_root since the load of dump {left[0].uri} was cut off.",
            remedy="Set dump_root back until a cycle has succeeded; then change it.",
            policy=policy.name,
        )


def _begun_below(directory: str, options: StorageOptions | None) -> tuple[str, ...]:
    return tuple(join(directory, name) for name in dumps_with(directory, COPY_PLAN, options))


def dumps_with(directory: str, file: str, options: StorageOptions | None) -> list[str]:
    """Return the names of the dumps below a directory that have a file, sorted.

    The directories are listed: a driver's ``glob`` would take characters of ``dump_root`` for a pattern.

    :param file: path of the file in a dump.
    """
    _, names = list_children(directory, options=options)

    def has_file(name: str) -> bool:
        return is_there(join(directory, name, file), options=options)

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="dumps") as workers:
        return sorted(compress(names, workers.map(has_file, names)))


def unfinished_loads(policy: ReplicationPolicy, loaded: str) -> Iterator[DumpDirectory]:
    """Yield the increments that continue from the target's position and whose load has begun to copy.

    :param loaded: URI of the dump from which the target was last loaded.
    """
    yield from UnfinishedLoads(policy=policy, loaded=loaded).dumps


def unsettled_loads(policy: ReplicationPolicy, loaded: str) -> list[DumpDirectory]:
    """Return the increments whose load has begun to copy since the target's last dump was made.

    Besides the unfinished loads, these may be loads that continue from an earlier position: a take-over has
    then ended the load of ``loaded``, and was killed.

    :param loaded: URI of the dump from which the target was last loaded.
    """
    last = DumpDirectory(loaded, policy.storage_options)
    positions = {loaded, last.manifest().previous}
    dumps = [DumpDirectory(uri, policy.storage_options) for uri in begun_since(last, begun_uris(policy))]
    return [dump for dump in dumps if dump.manifest().is_increment and dump.manifest().previous in positions]


def begun_since(dump: DumpDirectory, begun: Iterable[str]) -> list[str]:
    """Return the dumps of a list whose load had not begun yet when a dump was made.

    :param begun: URIs of dumps whose load has begun by now.
    """
    # A dump's URI, as a user gives it, may be written otherwise than that of the policy's directory.
    known = {*map(canonical, dump.manifest().begun), canonical(dump.uri)}
    return [uri for uri in begun if canonical(uri) not in known]


def cleared_since(policy: ReplicationPolicy, dump: DumpDirectory) -> list[str]:
    """Return the increments from a dump's position whose load may have dropped something after that dump.

    Such a load may have been killed before it wrote its copy plan: then it has copied nothing, and
    :func:`begun_since` does not know it.

    :return: URIs of dumps.
    """
    manifest, options = dump.manifest(), policy.storage_options
    names = dumps_with(policy.directory, MADE_ROOM, options)
    later = []
    for uri in begun_since(dump, (join(policy.directory, name) for name in names)):
        other = DumpDirectory(uri, options).manifest()
        if other.previous == manifest.previous and other.event_id >= manifest.event_id:
            later.append(uri)
    return later


@dataclass(frozen=True, kw_only=True)
class UnfinishedLoads:
    """The unfinished loads of a target; their dumps are read at the first use.

    :param loaded: URI of the dump from which the target was last loaded.
    :param begun: URIs of the dumps whose load had begun; by default, at the time of that reading.
    """

    policy: ReplicationPolicy
    loaded: str
    begun: tuple[str, ...] | None = None

    @cached_property
    def dumps(self) -> tuple[DumpDirectory, ...]:
        """Return the increments that continue from the target's position and whose load has begun."""
        begun = begun_uris(self.policy) if self.begun is None else self.begun
        dumps = (DumpDirectory(uri, self.policy.storage_options) for uri in begun)
        return tuple(dump for dump in dumps if dump.manifest().previous == self.loaded)
