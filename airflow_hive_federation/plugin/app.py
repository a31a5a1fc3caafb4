"""Serves the page's script and data to Airflow's users. Imported by API servers only.

Every route is a GET, because Airflow accepts the session's cookie for any verb, and every route asks Airflow
for permission. The page triggers DAG runs through Airflow's own API.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import AccessView, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_view
from fastapi import Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import FileResponse, JSONResponse

from airflow_hive_federation.errors import HiveFederationError
from airflow_hive_federation.hooks.published import state_directory
from airflow_hive_federation.plugin import cluster_views, views
from airflow_hive_federation.plugin.reading import documents_of, policy_states, read_policy, tables_of
from airflow_hive_federation.plugin.views import Part, PolicyState, part_of
from airflow_hive_federation.published.clusters import CLUSTERS, PLACED, ROUTED, ROUTES
from airflow_hive_federation.published.remotes import REMOTE, REMOTES
from airflow_hive_federation.published.work import COMPACTED, COMPACTION, INGEST, INGESTED

_SCRIPT = Path(__file__).with_name("page.js")
_MOST_ROWS = 500
#: Published state changes from one look to the next, and belongs to one user's rights.
_FRESH = {"Cache-Control": "no-store"}


def build_app() -> FastAPI:
    """Return the application, whose routes are relative to its prefix."""
    app = FastAPI(
        title="Hive federation",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        # Everybody who may see Airflow's UI; the rights to read DAGs narrow the answers.
        dependencies=[Depends(requires_access_view(AccessView.WEBSITE))],
    )
    app.get("/page.js", response_class=FileResponse)(_script)
    app.get("/replication")(_policies)
    app.get("/replication/{key}")(_policy)
    app.get("/replication/{key}/tables")(_tables)
    app.get("/remotes")(_remotes)
    app.get("/clusters")(_clusters)
    app.get("/clusters/routes")(_routes)
    app.get("/ingest")(_ingest)
    app.get("/compaction")(_compaction)
    app.get("/compaction/{key}/requests")(_requests)
    app.add_exception_handler(HiveFederationError, _refused)
    return app


def _part(
    q: Annotated[str, Query(max_length=300)] = "",
    sort: Annotated[str, Query(max_length=40)] = "",
    limit: Annotated[int, Query(ge=1, le=_MOST_ROWS)] = 50,
    offset: Annotated[int, Query(ge=0)] = 0,
) -> Part:
    return Part(search=q, sort=sort, limit=limit, offset=offset)


def _readable(user: GetUserDep) -> Callable[[str], bool]:
    """Return a function that decides whether the user may read a DAG."""
    known: dict[str, bool] = {}

    def readable(dag_id: str) -> bool:
        if dag_id not in known:
            known[dag_id] = get_auth_manager().is_authorized_dag(
                method="GET", user=user, details=DagDetails(id=dag_id)
            )
        return known[dag_id]

    return readable


def _visible(user: GetUserDep) -> Callable[[PolicyState], bool]:
    """Return a function that decides whether the user may see a policy."""
    readable = _readable(user)

    def visible(state: PolicyState) -> bool:
        if state.problem and not state.published_s:
            # No document shows by which DAG the policy is published. Whoever can mend that sees the problem.
            return bool(get_auth_manager().is_authorized_connection(method="PUT", user=user))
        return all(readable(dag_id) for dag_id in state.dag_ids)

    return visible


PartDep = Annotated[Part, Depends(_part)]
ReadableDep = Annotated[Callable[[str], bool], Depends(_readable)]
VisibleDep = Annotated[Callable[[PolicyState], bool], Depends(_visible)]


def _script() -> FileResponse:
    # A browser asks each time whether the script has changed, as it does with an upgrade.
    return FileResponse(_SCRIPT, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


def _policies(part: PartDep, visible: VisibleDep) -> JSONResponse:
    directory = state_directory()
    rows = sorted(
        (views.policy_row(state) for state in policy_states(directory) if visible(state)),
        key=views.worst_first,
    )
    found = part_of(rows, part, searched=("name", "source_database", "target_database", "health"))
    return _answer({**found, "published": len(rows)})


def _policy(key: str, visible: VisibleDep) -> JSONResponse:
    directory = state_directory()
    state = read_policy(directory, key)
    if not visible(state) or not state.published_s:
        raise _absent()
    tables, _ = tables_of(directory, key)
    return _answer(views.policy_detail(state, tables))


def _tables(key: str, part: PartDep, visible: VisibleDep, readable: ReadableDep) -> JSONResponse:
    directory = state_directory()
    if not visible(read_policy(directory, key)):
        raise _absent()
    documents = tables_of(directory, key)
    publishers = {document.by.dag_id for document in documents if document is not None} - {""}
    if not all(map(readable, publishers)):
        raise _absent()
    return _answer(part_of(views.table_rows(*documents), part, searched=("name",)))


def _absent() -> HTTPException:
    # A policy that the user may not see does not exist for the user.
    return HTTPException(404, "No state of this policy is published, or you have no right to see it.")


def _remotes(part: PartDep, readable: ReadableDep) -> JSONResponse:
    rows = sorted(
        (
            views.remote_row(key, state, problem)
            for key, state, problem in documents_of(state_directory(), REMOTES, REMOTE)
            if state is None or not state.by.dag_id or readable(state.by.dag_id)
        ),
        key=views.worst_first,
    )
    found = part_of(rows, part, searched=("name", "points_to", "via", "metastore", "health"))
    return _answer({**found, "published": len(rows)})


def _clusters(part: PartDep, readable: ReadableDep) -> JSONResponse:
    # Rows of ten thousand tables are light; only those of the requested part are filled.
    now_s = time.time()
    rows = sorted(
        (
            row
            for key, state, problem in documents_of(state_directory(), CLUSTERS, PLACED)
            for row in cluster_views.table_rows(key, state, problem, readable, now_s=now_s)
        ),
        key=views.worst_first,
    )
    searched = ("name", "primary", "copied_to", "metastore", "health")
    found = part_of(rows, part, searched=searched, fill=cluster_views.filled)
    return _answer({**found, "published": len(rows), "clusters": cluster_views.summary(rows)})


def _routes(part: PartDep, readable: ReadableDep) -> JSONResponse:
    rows = cluster_views.route_rows(documents_of(state_directory(), ROUTES, ROUTED), readable)
    found = part_of(rows, part, searched=("tables", "cluster", "rule", "reason", "metastore"))
    return _answer({**found, "published": len(rows)})


def _ingest(part: PartDep, readable: ReadableDep) -> JSONResponse:
    rows = sorted(
        (
            views.ingest_row(key, state, problem)
            for key, state, problem in documents_of(state_directory(), INGEST, INGESTED)
            if state is None or not state.by.dag_id or readable(state.by.dag_id)
        ),
        key=views.worst_first,
    )
    found = part_of(rows, part, searched=("name", "source", "metastore", "health"))
    return _answer({**found, "published": len(rows)})


def _compaction(part: PartDep, readable: ReadableDep) -> JSONResponse:
    rows = [
        views.compaction_row(key, state, problem)
        for key, state, problem in documents_of(state_directory(), COMPACTION, COMPACTED)
        if state is None or not state.by.dag_id or readable(state.by.dag_id)
    ]
    found = part_of(rows, part, searched=("name",))
    return _answer({**found, "published": len(rows)})


def _requests(key: str, part: PartDep, readable: ReadableDep) -> JSONResponse:
    state = state_directory().read(COMPACTION, key, COMPACTED)
    if state is None or (state.by.dag_id and not readable(state.by.dag_id)):
        raise HTTPException(404, "No queue of this metastore is published, or you have no right to see it.")
    found = part_of(views.request_rows(state), part, searched=("table", "partition", "state"))
    return _answer(found)


def _answer(content: dict[str, object]) -> JSONResponse:
    return JSONResponse({"now_s": time.time(), **content}, headers=_FRESH)


def _refused(_request: Request, error: Exception) -> JSONResponse:
    message, remedy = getattr(error, "message", str(error)), getattr(error, "remedy", "")
    return JSONResponse({"detail": message, "remedy": remedy}, status_code=503, headers=_FRESH)
