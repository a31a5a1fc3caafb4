"""Which dumps of a policy are needed no more."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from airflow_hive_federation.replication.format.directory import DumpDirectory
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.replication.replica.homes import Homes
from airflow_hive_federation.storage.filesystem import join, open_filesystem, storage_errors

logger = logging.getLogger(__name__)

_NAME = re.compile(r"\d+(-\d+)+")
#: Dumps that are kept although nothing refers to them, to be looked at.
KEPT = 10


def forget_old_dumps(
    policy: ReplicationPolicy,
    current: DumpDirectory,
    *,
    keep: int = KEPT,
    progress: Callable[[str], None] = logger.info,
) -> list[str]:
    """Remove loaded dumps that describe no table any more; return their URIs.

    A dump that was not loaded stays: perhaps somebody is about to. So does one that was loaded into another
    database, which the policy had for its target before, or has on another metastore.

    :param current: the dump that the target was loaded from last.
    :param keep: how many of the latest ones stay all the same.
    """
    options = policy.storage_options
    filesystem, path = open_filesystem(policy.directory, options)
    with storage_errors(policy.directory):
        found = filesystem.glob(f"{path}/*/_finished_load")
        dumps = {name for one in found if _NAME.fullmatch(name := one.split("/")[-2])}
    needed = {uri.rstrip("/").rpartition("/")[2] for uri in {*Homes(current).uris, current.uri}}
    # Names begin with the event that the dump begins at or is of: they sort by age.
    old = sorted((name for name in dumps - needed if _is_of(policy, name)), key=_age)
    gone = [join(policy.directory, name) for name in old[: max(0, len(old) - keep)]]
    for uri in gone:
        _, directory = open_filesystem(uri, options)
        with storage_errors(uri):
            filesystem.rm(directory, recursive=True)
        progress(f"Dump {uri} is needed no more and is removed.")
    return gone


def _is_of(policy: ReplicationPolicy, name: str) -> bool:
    """Whether a dump was loaded into the policy's target database."""
    dump = DumpDirectory(join(policy.directory, name), policy.storage_options)
    return dump.loaded_into == policy.target_database


def _age(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split("-"))
