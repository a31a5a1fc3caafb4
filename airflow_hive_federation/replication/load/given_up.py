"""Removes files that earlier loads of a policy planned to copy and that its bootstrap does not copy.

Such a load was given up (because its dump had gone out of date, for example) before it created a table. Its
files lie in the directories of tables that are about to be created, and readers would see them. Files
elsewhere do not belong to this target: the policy may have had another target database before, which is still
read.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator

from airflow_hive_federation.acid.names import is_acid_directory
from airflow_hive_federation.model.files import CopyItem
from airflow_hive_federation.progress.events import FileRemoved
from airflow_hive_federation.progress.observers import Observer
from airflow_hive_federation.replication.format.unfinished import COPY_PLAN, begun_loads
from airflow_hive_federation.replication.load.target_places import TargetPlaces
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.storage.durable import sync_directories
from airflow_hive_federation.storage.empty_directories import remove_empty_directory
from airflow_hive_federation.storage.filesystem import canonical
from airflow_hive_federation.storage.plan_files import read_plan
from airflow_hive_federation.storage.publishing import remove_file


def check_given_up(policy: ReplicationPolicy, copy_plan: str) -> None:
    """Read the copy plans of other loads, by which :func:`remove_given_up` removes files.

    :param copy_plan: URI of the present load's copy plan.
    :raises DumpCorruptError: a plan has names that lead elsewhere.
    """
    for _ in _given_up(policy, copy_plan):
        pass


def remove_given_up(
    policy: ReplicationPolicy,
    copy_plan: str,
    places: TargetPlaces,
    *,
    observer: Observer,
    check: Callable[[], None],
) -> None:
    """Remove the files that other loads planned to copy into the places of this load, and that it does not.

    :param copy_plan: URI of the present load's copy plan.
    :param check: runs before each file, and raises if the cycle must end.
    """
    wanted: set[str] | None = None
    emptied = set()
    for item in _given_up(policy, copy_plan):
        if wanted is None:
            wanted = {canonical(each.target) for each in read_plan(copy_plan, options=policy.storage_options)}
        if canonical(item.target) not in wanted and places.owns(item.target):
            check()
            if remove_file(item.target, policy.storage_options):
                emptied.add(item.target.rpartition("/")[0])
                observer(FileRemoved(uri=item.target))
    # Some readers take an empty base for one that hides all deltas below it.
    bases = {uri for uri in emptied if is_acid_directory(posixpath.basename(uri))}
    for directory in bases:
        check()
        if remove_empty_directory(directory, policy.storage_options):
            emptied.discard(directory)
            emptied.add(directory.rpartition("/")[0])
    # A crash must not bring these files back below a table that exists by then.
    sync_directories(emptied)


def _given_up(policy: ReplicationPolicy, copy_plan: str) -> Iterator[CopyItem]:
    for dump in begun_loads(policy):
        plan = f"{dump.uri}/{COPY_PLAN}"
        if canonical(plan) != canonical(copy_plan):
            yield from read_plan(plan, options=policy.storage_options)
