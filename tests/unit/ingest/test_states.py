"""The transition table decides which calls are legal in each state."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from airflow_hive_federation import errors as tree
from airflow_hive_federation.errors import (
    HiveFederationError,
    MetastoreServerError,
    MetastoreUnreachableError,
    OutcomeUnknownError,
    StorageFullError,
)
from airflow_hive_federation.ingest import errors
from airflow_hive_federation.ingest.states import TRANSITIONS, Call, ConnectionState, after


def test_a_life() -> None:
    state = ConnectionState.READY
    for call, expected in [
        (Call.BEGIN, "open"),
        (Call.WRITE, "open"),
        (Call.COMMIT, "committed"),
        (Call.BEGIN, "open"),
        (Call.ABORT, "aborted"),
        (Call.BEGIN, "open"),
        (Call.CLOSE, "closed"),
        (Call.CLOSE, "closed"),
    ]:
        state = after(state, call)
        assert state == expected


@pytest.mark.parametrize("state", ConnectionState)
@pytest.mark.parametrize("call", Call)
def test_what_is_not_in_the_table_is_refused(state: ConnectionState, call: Call) -> None:
    if (state, call) in TRANSITIONS:
        return
    with pytest.raises(errors.InvalidTransactionState, match=f"{call} is not legal") as caught:
        after(state, call)
    assert caught.value.state == state
    assert not caught.value.retryable


def test_write_and_commit_are_legal_only_inside_a_transaction() -> None:
    legal = {state for state, call in TRANSITIONS if call in {Call.WRITE, Call.COMMIT}}
    assert legal == {ConnectionState.OPEN}


def test_errors_are_of_the_tree_and_travel() -> None:
    kinds = {kind for kind in vars(tree).values() if isinstance(kind, type)}
    own = {kind for kind in kinds if issubclass(kind, tree.StreamingError)}
    assert len(own) == 15
    for kind in own:
        error = kind("what", remedy="do", column="c")
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is kind
        assert again.column == "c"
        assert isinstance(error, HiveFederationError)


def test_every_streaming_error_has_its_further_name() -> None:
    listed = dict(re.findall(r"^([A-Z]\w+) +(\w+)$", errors.__doc__ or "", re.MULTILINE))
    kinds = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    own = {name: kind.__name__ for name, kind in kinds.items() if issubclass(kind, tree.StreamingError)}
    assert {name: kind for name, kind in own.items() if name != kind} == listed
    assert set(listed.values()) == {name for name in vars(tree) if name in own.values()}
    assert len(listed) == len(set(listed.values())) == 15


@pytest.mark.parametrize(
    ("raised", "kind", "retryable"),
    [
        (MetastoreUnreachableError("gone"), errors.ConnectionError, True),
        (OutcomeUnknownError("broke"), errors.ConnectionError, True),
        (MetastoreServerError("no"), errors.InvalidTable, False),
    ],
)
def test_a_metastores_errors_are_translated(
    raised: Exception, kind: type[errors.StreamingException], retryable: bool
) -> None:
    with (
        pytest.raises(errors.StreamingException) as caught,
        errors.metastore_errors(errors.InvalidTable, "x"),
    ):
        raise raised
    assert type(caught.value) is kind
    assert caught.value.retryable is retryable


def test_a_full_disk_is_an_io_failure() -> None:
    with pytest.raises(errors.StreamingIOFailure, match="full"), errors.io_errors("flush"):
        raise StorageFullError("full")


def test_every_error_is_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "streaming-ingest.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:· )?`(\w+)` \| `(\w+)` \|.*\| (yes|no) \|$", text, re.MULTILINE)
    own = {
        (kind.__name__, name, "yes" if kind.retryable else "no")
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, tree.StreamingError) and name != kind.__name__
    }
    assert set(rows) == own - {("StreamingError", "StreamingException", "no")}


def test_every_state_is_documented_with_its_calls() -> None:
    text = (Path(__file__).parents[3] / "docs" / "streaming-ingest.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", text.partition("| legal calls |")[2], re.MULTILINE
    )
    documented = {
        (state, call) for states, calls in rows[:4] for state in names(states) for call in names(calls)
    }
    legal = {(str(state), str(call)) for state, call in TRANSITIONS}
    # What writes is one call for the table.
    writing = {"write_records", "write_batch", "flush"}
    assert {pair for pair in documented if pair[1] not in writing} == legal


def names(text: str) -> list[str]:
    return re.findall(r"`(\w+)`", text)
