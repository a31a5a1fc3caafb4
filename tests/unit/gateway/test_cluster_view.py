"""A cluster's view passes requests and answers on without a change, unless they concern clusters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from airflow_hive_federation.gateway.cluster_view import ClusterView
from airflow_hive_federation.gateway.dispatch import Metastore
from airflow_hive_federation.gateway.handler import Call, Caller, Deadline
from airflow_hive_federation.gateway.messages import I32, REPLY, Emit, field_bytes, head_bytes
from airflow_hive_federation.metastore.connection import message_types
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.metastore.protocol import encode
from tests.support.copied_table import table
from tests.support.two_clusters import two_clusters


@dataclass
class Answering:
    answer: bytes

    def relay(self, call: Call, emit: Emit) -> None:
        del call
        emit(self.answer)


def answer_of(method: str, success: Any) -> bytes:
    """An answer of a later Hive: it ends with a field that this package does not know."""
    body = encode(message_types(method)[1](success=success))
    return head_bytes(method, REPLY, 1) + body[:-1] + field_bytes(99, I32, b"\0\0\0\1") + b"\0"


@pytest.mark.parametrize("primary", ["C1", "C2"])
def test_a_table_of_the_cluster_keeps_unknown_fields(tmp_path: Path, primary: str) -> None:
    """An engine may write it back."""
    registry = two_clusters(tmp_path / "C1", tmp_path / "C2")
    described = table()
    described.parameters = {**(described.parameters or {}), "hive.cluster.primary": primary}
    answer = answer_of("get_table_req", types.GetTableResult(table=described))
    target = cast("Metastore", Answering(answer))
    view = ClusterView(target, registry, registry.cluster("C1"), check_files=False)
    parts: list[bytes] = []
    call = Call("get_table_req", b"", Caller(), Deadline(60), None)
    view.relay(call, parts.append)
    assert (b"".join(parts) == answer) == (primary == "C1")
