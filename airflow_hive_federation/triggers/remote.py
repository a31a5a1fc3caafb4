"""Watches remotes in the triggerer, for assets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.remotes import remotes_of
from airflow_hive_federation.triggers.watching import WatchTrigger

if TYPE_CHECKING:
    from airflow_hive_federation.remotes.probes import Look


class RemoteChangesTrigger(WatchTrigger):
    """Yields an event per change of a remote, for the ``AssetWatcher`` of an asset that starts its refresh.

    It is edge-triggered: it yields a change once, and not again while the refresh is pending. It retries a
    remote that does not answer, because a watcher has no task to fail.

    :param metastore_conn_id: the connection of the local metastore.
    :param remote: the local name.
    :param kind: ``table`` or ``database``.
    :param database: the database of a table whose name contains none.
    :param poll_s: seconds between two queries.
    """

    fields = ("metastore_conn_id", "remote", "kind", "database", "poll_s")

    def __init__(
        self,
        *,
        metastore_conn_id: str,
        remote: str,
        kind: str = "database",
        database: str = "default",
        poll_s: float = 30.0,
    ) -> None:
        super().__init__(poll_s=poll_s)
        self.metastore_conn_id = metastore_conn_id
        self.remote = remote
        self.kind = kind
        self.database = database
        self._before: Look | None = None

    def _look(self) -> Mapping[str, object]:
        """Look at the remote; return ``remote`` and ``event_id`` of a change that was not reported."""
        from airflow_hive_federation.remotes.probes import look
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        kind, before = Kind(self.kind), self._before
        with remotes_of(self.metastore_conn_id, database=self.database) as remotes:
            after = None if before is None else before.event_id
            now = look(remotes, kind, parse_name(kind, self.remote), after=after)
        self._before = now
        # By events, each change counts once; without them, a look finds the same difference until a refresh.
        is_reported = before is not None and before.changed and now == before and now.event_id is None
        return {"remote": self.remote, "event_id": now.event_id} if now.changed and not is_reported else {}
