"""A verification without a Kerberos login ends with an error, and blames no table."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.replication.format.job_records import SidePlan
from airflow_hive_federation.spark import verify_replica


@pytest.mark.parametrize("login", [True, False])
def test_a_missing_login_is_no_damage(monkeypatch: pytest.MonkeyPatch, login: bool) -> None:
    cause = "Bad stripe" if login else "Client cannot authenticate via:[TOKEN, KERBEROS]"

    def unreadable(*_: Any) -> Any:
        raise PySparkException(f"[FAILED_READ_FILE.NO_HINT] Encountered error: {cause}")

    monkeypatch.setattr(verify_replica, "_rows", unreadable)
    plan: Any = SidePlan.__new__(SidePlan)
    object.__setattr__(plan, "table", types.Table(tableName="t"))
    object.__setattr__(plan, "side", "target")
    object.__setattr__(plan, "row_digests", False)
    session: Any = None
    if login:
        assert "Bad stripe" in (verify_replica._count(session, plan, None).unreadable or "")
    else:
        with pytest.raises(PySparkException, match="authenticate"):
            verify_replica._count(session, plan, None)
