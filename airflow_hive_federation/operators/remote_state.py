"""Lets the tasks of a remote publish its state, for the page in Airflow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_hive_federation.hooks.published import (
    Log,
    StatePublished,
    described,
    publication,
    publisher_of,
    state_directory,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_hive_federation.published.remotes import RemotePublisher
    from airflow_hive_federation.remotes.reports import RefreshReport
    from airflow_hive_federation.remotes.session import Remotes


class RemoteStatePublished(StatePublished):
    """Publishes the state of a remote, and the error with which a block of a task ends, which it lets pass.

    :param metastore: the connection of the local metastore.
    :param remote: the local name of the remote.
    :param database: the database of a table whose name contains none.
    """

    def __init__(
        self, *, metastore: str, remote: str, kind: str, database: str, context: Context, log: Log
    ) -> None:
        super().__init__(log)
        self._metastore = metastore
        self._remote = f"{database}.{remote}" if kind == "table" and "." not in remote else remote
        self._context = context

    def _failed(self, error: Exception) -> None:
        self._publisher(self._remote).failure(*described(error))

    def refreshed(self, remotes: Remotes, report: RefreshReport) -> None:
        """Publish a refresh, with the place that the link points to."""
        from airflow_hive_federation.remotes.statement import Kind, parse_name

        with publication(self._log):
            kind = Kind.TABLE if "." in report.remote else Kind.DATABASE
            link = remotes.link(kind, parse_name(kind, report.remote))
            self._publisher(report.remote).refresh(report, points_to=str(link.remote), via=link.via or "")

    def dropped(self) -> None:
        """Publish that the remote was dropped."""
        with publication(self._log):
            self._publisher(self._remote).drop()

    def _publisher(self, remote: str) -> RemotePublisher:
        from airflow_hive_federation.published.remotes import RemotePublisher

        return RemotePublisher(
            state_directory(),
            metastore=self._metastore,
            remote=remote.lower(),
            kind="table" if "." in remote else "database",
            by=publisher_of(self._context),
        )
