"""Names the member of a group in the errors of its work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.replication.policy import ReplicationPolicy


@contextmanager
def member_named(policy: ReplicationPolicy) -> Iterator[None]:
    """Name the policy and its group in the message of an error that ends the block."""
    try:
        yield
    except HiveFederationError as error:
        raise type(error)(
            f"Member {policy.name!r} of consistency group {policy.group!r}: {error.message}",
            remedy=error.remedy,
            **error.facts,
        ) from error
