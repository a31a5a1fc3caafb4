"""Finds loads that have begun: finished ones, killed ones and running ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import compress

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.filesystem import canonical, join
from airflow_hive_federation.storage.listing import is_there, list_children

#: A load writes this file first.
COPY_PLAN = "load/copy_plan.jsonl"
#: The number of dumps that are looked into in parallel.
_THREADS = 8


def begun_loads(policy: ReplicationPolicy) -> Iterator[DumpDirectory]:
    """Yield the dumps of a policy whose load has begun to copy, whether or not it was published."""
    yield from (DumpDirectory(uri, policy.storage_options) for uri in begun_uris(policy))


def begun_uris(policy: ReplicationPolicy) -> tuple[str, ...]:
    """Return the URIs of the dumps that :func:`begun_loads` yields."""
    return tuple(join(policy.directory, name) for name in dumps_with(policy, COPY_PLAN))


def dumps_with(policy: ReplicationPolicy, file: str) -> list[str]:
    """Return the names of a policy's dumps that have a file, sorted.

    The directories are listed: a driver's ``glob`` would take characters of ``dump_root`` for a pattern.

    :param file: path of the file in a dump.
    """
    options = policy.storage_options
    _, names = list_children(policy.directory, options=options)

    def has_file(name: str) -> bool:
        return is_there(join(policy.directory, name, file), options=options)

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
