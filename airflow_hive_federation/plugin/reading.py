"""Reads the published documents for the page; what cannot be read is shown, and hides nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.plugin.views import PolicyState
from airflow_hive_federation.published.directory import (
    CYCLES,
    POSITION,
    REPLICATION,
    TABLES,
    VERIFICATION,
    VERIFIED,
    D,
    StateDirectory,
    Subject,
)
from airflow_hive_federation.published.documents import PolicyTables, VerifiedTables

#: Policies that are read side by side: on an object store, each file is a request.
_THREADS = 16


def policy_states(directory: StateDirectory) -> Iterator[PolicyState]:
    """Yield the state of each policy that has published any.

    :raises StorageError: the directory cannot be listed.
    """
    keys = directory.keys(REPLICATION)
    if not keys:
        return
    with ThreadPoolExecutor(min(_THREADS, len(keys)), thread_name_prefix="page") as pool:
        yield from pool.map(partial(read_policy, directory), keys)


def read_policy(directory: StateDirectory, key: str) -> PolicyState:
    """Read all that is published about a policy, but for its tables.

    If one document cannot be read, the others show by which DAGs the policy is published.
    """
    problems: list[str] = []

    def read(subject: Subject[D]) -> D | None:
        try:
            return directory.read(REPLICATION, key, subject)
        except StorageError as error:
            problems.append(str(error))
            return None

    state = PolicyState(
        key=key, position=read(POSITION), cycles=read(CYCLES), verification=read(VERIFICATION)
    )
    return replace(state, problem=problems[0]) if problems else state


def documents_of(
    directory: StateDirectory, folder: str, subject: Subject[D]
) -> Iterator[tuple[str, D | None, str]]:
    """Yield the key and the document of each object of a folder, or the reason why it cannot be read.

    :raises StorageError: the folder cannot be listed.
    """

    def read(key: str) -> tuple[str, D | None, str]:
        try:
            return key, directory.read(folder, key, subject), ""
        except StorageError as error:
            return key, None, str(error)

    keys = directory.keys(folder)
    if not keys:
        return
    with ThreadPoolExecutor(min(_THREADS, len(keys)), thread_name_prefix="page") as pool:
        yield from pool.map(read, keys)


def tables_of(directory: StateDirectory, key: str) -> tuple[PolicyTables | None, VerifiedTables | None]:
    """Read what is published about the tables of a policy.

    :raises StorageError: a document cannot be read.
    """
    return directory.read(REPLICATION, key, TABLES), directory.read(REPLICATION, key, VERIFIED)
