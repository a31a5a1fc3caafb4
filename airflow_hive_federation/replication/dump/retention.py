"""Removes dumps of a policy that are no longer needed."""

from __future__ import annotations

import re

from airflow_hive_federation.progress.events import DumpRemoved
from airflow_hive_federation.progress.observers import LOGGED, Observer
from airflow_hive_federation.replication.format.directory import FINISHED_LOAD, DumpDirectory
from airflow_hive_federation.replication.format.unfinished import dumps_with
from airflow_hive_federation.replication.policy import KEPT_DUMPS, ReplicationPolicy
from airflow_hive_federation.replication.replica.table_index import TableIndex
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors
from airflow_hive_federation.storage.listing import list_children
from airflow_hive_federation.storage.options import StorageOptions
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
    another database: a former target of the policy, or its target on another metastore. A dump that is later
    than the current one stays, because it is a successor's: this process may have been suspended meanwhile.
    Each older dump that the successor's needs, the current one needs, too. If the current dump is a copy
    whose directory has another name, its age is unknown, and all dumps stay.

    :param current: the dump from which this process has loaded the target.
    :param keep: number of the latest of these dumps that stay.
    """
    if not _NAME.fullmatch(_name(current.uri)):
        return []
    options = policy.storage_options
    dumps = {name for name in dumps_with(policy.directory, FINISHED_LOAD, options) if _NAME.fullmatch(name)}
    needed = {_name(uri) for uri in {*TableIndex(current).uris, current.uri}}
    # Names begin with the event at which the dump begins, or which it describes: they sort by age.
    now = _age(_name(current.uri))
    old = sorted((name for name in dumps - needed if _age(name) < now and _is_of(policy, name)), key=_age)
    gone = [join(policy.directory, name) for name in old[: max(0, len(old) - keep)]]
    for uri in gone:
        _remove(uri, options)
        observer(DumpRemoved(dump=uri))
    return gone


def _remove(uri: str, options: StorageOptions | None) -> None:
    """Remove a dump, so that what a kill leaves of it neither counts as a load that has begun nor stays."""
    files, directories = list_children(uri, options=options)
    filesystem, path = open_filesystem(uri, options)
    with storage_errors(uri):
        # The copy plan is in a directory. With it, and without the manifest, the dump would block each cycle.
        for name in directories:
            remove_tree(filesystem, f"{path}/{name}")
        for file in files:
            if file.path != FINISHED_LOAD:
                filesystem.rm_file(f"{path}/{file.path}")
        remove_tree(filesystem, path)


def _name(uri: str) -> str:
    return uri.rstrip("/").rpartition("/")[2]


def _is_of(policy: ReplicationPolicy, name: str) -> bool:
    """Return whether a dump was loaded into the policy's target database."""
    dump = DumpDirectory(join(policy.directory, name), policy.storage_options)
    return dump.loaded_into == policy.target_database


def _age(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("-"))
