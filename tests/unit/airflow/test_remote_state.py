"""The tasks of a remote publish the error with which they fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_hive_federation.hooks.compat import AirflowException, AirflowFailException
from airflow_hive_federation.hooks.published import state_directory
from airflow_hive_federation.operators.remote import DropRemoteOperator, RefreshRemoteOperator
from airflow_hive_federation.published.remotes import REMOTE, REMOTES


@pytest.mark.parametrize("kind", [DropRemoteOperator, RefreshRemoteOperator])
def test_a_failure_is_published(
    kind: Any, connection: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__HIVE_FEDERATION__STATE_URI", tmp_path.as_uri())
    conn_id = connection(host="127.0.0.1", port=1)
    place = state_directory()
    with pytest.raises(AirflowFailException, match="kind is 'databse'"):
        kind(task_id="t", remote="far_sales", kind="databse", metastore_conn_id=conn_id).execute({})
    assert list(place.keys(REMOTES)) == []
    with pytest.raises(AirflowException, match="No metastore answers"):
        kind(task_id="t", remote="far_sales", kind="database", metastore_conn_id=conn_id).execute({})
    (key,) = place.keys(REMOTES)
    remote = place.read(REMOTES, key, REMOTE)
    assert remote is not None
    assert (remote.remote, remote.kind) == ("far_sales", "database")
    assert "No metastore answers" in remote.error
