"""Removes dumps of a policy that are no longer needed."""

from __future__ import annotations

import re

from airflow_hive_federation.progress.events import DumpRemoved
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.format.unfinished import dumps_with
from airflow_hive_federation.replication.policy import KEPT_DUMPS, ReplicationPolicy
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.trees import remove_tree

_NAME = re.compile(r"\d+(-\d+)+")


def forget_old_dumps(
    policy: ReplicationPolicy,
    current: DumpDirectory,
    *,
    keep: int = KEPT_DUMPS,
    observer: Observer = LOGGED,
) -> list[str]:
    """Remove loaded dumps that describe no table any more, and return their URIs.

    A dump that was not loaded stays, because a load of it may follow. So does a dump that was loaded into
    another database: a former target of the policy, or its target on another metastore.

    :param current: the dump from which the target was last loaded.
    :param keep: number of the latest of these dumps that stay.
    """
    options = policy.storage_options
    dumps = {name for name in dumps_with(policy, "_finished_load") if _NAME.fullmatch(name)}
    needed = {uri.rstrip("/").rpartition("/")[2] for uri in {*TableIndex(current).uris, current.uri}}
    # Names begin with the event at which the dump begins, or which it describes: they sort by age.
    old = sorted((name for name in dumps - needed if _is_of(policy, name)), key=_age)
    gone = [join(policy.directory, name) for name in old[: max(0, len(old) - keep)]]
    for uri in gone:
        filesystem, path = open_filesystem(uri, options)
        with storage_errors(uri):
            remove_tree(filesystem, path)
        observer(DumpRemoved(dump=uri))
    return gone


def _is_of(policy: ReplicationPolicy, name: str) -> bool:
    """Return whether a dump was loaded into the policy's target database."""
    dump = DumpDirectory(join(policy.directory, name), policy.storage_options)
    return dump.loaded_into == policy.target_database


def _age(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("-"))
