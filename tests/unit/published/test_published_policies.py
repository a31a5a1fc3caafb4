"""Tasks and commands publish documents about policies; nothing here needs a metastore."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_hive_federation.errors import StorageError
from airflow_hive_federation.published import directory as state
from airflow_hive_federation.published import folding
from airflow_hive_federation.published.directory import REPLICATION, StateDirectory, policy_key
from airflow_hive_federation.published.documents import (
    FAILED,
    LagPoint,
    PolicyCycles,
    PolicyName,
    Publisher,
    VerifiedTable,
)
from airflow_hive_federation.published.folding import Publication, with_point
from airflow_hive_federation.published.policies import PolicyPublisher
from airflow_hive_federation.replication.replica.cycle_history import IDLE, INCREMENT, CycleRecord
from airflow_hive_federation.replication.replica.differences import Difference
from airflow_hive_federation.replication.status import Lag, Lags, ReplicationStatus, TableLag
from airflow_hive_federation.replication.verify.report import TableReport, VerificationReport

NAME = PolicyName(name="shop", source_database="shop", target_database="shop_copy")
TASK = Publisher(dag_id="d", run_id="r", task_id="t")
RECORD = CycleRecord(kind=INCREMENT, event_id=7, ended_s=1000, seconds=2.0, files=3, size_bytes=40)


def at(time_s: float) -> Publication:
    return Publication(policy=NAME, at_s=time_s, by=TASK)


@pytest.fixture
def place(tmp_path: Path) -> StateDirectory:
    return StateDirectory(f"file:{tmp_path / 'state'}")


@pytest.fixture
def publisher(place: StateDirectory) -> PolicyPublisher:
    return PolicyPublisher(place, NAME, TASK)


def test_a_cycle_and_a_look_are_published(place: StateDirectory, publisher: PolicyPublisher) -> None:
    lags = Lags(
        event_id=7,
        source_event_id=9,
        total=Lag(events=2, seconds=5.0),
        tables={"t": Lag(events=2, seconds=5.0)},
    )
    publisher.cycle([RECORD], lags, skipped={"v": "it is a view"})
    (key,) = place.keys(REPLICATION)
    assert key == policy_key(NAME)
    position = place.read(REPLICATION, key, state.POSITION)
    assert position is not None
    assert (position.event_id, position.source_event_id, position.by) == (7, 9, TASK)
    assert position.lag is not None
    assert (position.lag.events, position.lag.size_bytes) == (2, None)
    tables = place.read(REPLICATION, key, state.TABLES)
    assert tables is not None
    assert [table.name for table in tables.lagging] == ["t"]
    assert tables.skipped == {"v": "it is a view"}
    # A sensor that looks later knows nothing about tables that are left out, and forgets none.
    publisher.lags(replace(lags, tables={}))
    tables = place.read(REPLICATION, key, state.TABLES)
    assert tables is not None
    assert (tables.lagging, tables.skipped) == ((), {"v": "it is a view"})
    cycles = place.read(REPLICATION, key, state.CYCLES)
    assert cycles is not None
    assert [(cycle.kind, cycle.files, cycle.by) for cycle in cycles.cycles] == [(INCREMENT, 3, TASK)]


def test_a_status_is_published(place: StateDirectory, publisher: PolicyPublisher) -> None:
    status = ReplicationStatus(
        database="shop_copy",
        state="loaded",
        event_id=7,
        source_event_id=9,
        lag=Lag(events=2, seconds=5.0),
        tables=[TableLag(name="t", events=2, seconds=5.0, size_bytes=11)],
        cycles=[RECORD],
        skipped={"v": "it is a view"},
    )
    publisher.status(status)
    key = policy_key(NAME)
    position = place.read(REPLICATION, key, state.POSITION)
    assert position is not None
    assert position.lag == LagPoint(at_s=position.published_s, events=2, seconds=5.0, size_bytes=11)
    # A source that does not answer takes nothing away.
    publisher.status(
        replace(status, source_event_id=None, lag=None, tables=(), skipped={}, source_error="gone")
    )
    position = place.read(REPLICATION, key, state.POSITION)
    assert position is not None
    assert (position.source_error, len(position.history)) == ("gone", 1)
    tables = place.read(REPLICATION, key, state.TABLES)
    assert tables is not None
    assert [table.size_bytes for table in tables.lagging] == [11]


def test_failures_stay_between_the_records_of_the_target() -> None:
    cycles: PolicyCycles | None = folding.with_records(None, [RECORD], at(1001), ours=True)
    for time_s in (1010.0, 1020.0, 1030.0):
        cycles = folding.with_failure(cycles, "E: away", "Start it.", at(time_s), seconds=1.0)
    cycles = folding.with_failure(cycles, "E: other", "", at(1040), seconds=1.0)
    idle = CycleRecord(kind=IDLE, event_id=8, ended_s=1050)
    cycles = folding.with_records(cycles, [RECORD, idle], at(1051), ours=False)
    assert [(cycle.kind, cycle.cycles, cycle.error) for cycle in cycles.cycles] == [
        (INCREMENT, 1, ""),
        (FAILED, 3, "E: away"),
        (FAILED, 1, "E: other"),
        (IDLE, 1, ""),
    ]
    # The publisher of a cycle stays known; that of another program's is not.
    assert [cycle.by.dag_id for cycle in cycles.cycles] == ["d", "d", "d", ""]


def test_a_cycle_of_ours_comes_last_whatever_the_clocks_show() -> None:
    """A failure has the time of its own machine, and a record whole seconds."""
    ahead = folding.with_failure(None, "E: away", "", at(5_000), seconds=1.0)
    cycles = folding.with_records(ahead, [RECORD], at(1001), ours=True)
    assert [cycle.kind for cycle in cycles.cycles] == [FAILED, INCREMENT]
    # A look cannot tell, and goes by the clocks.
    cycles = folding.with_records(ahead, [RECORD], at(1001), ours=False)
    assert [cycle.kind for cycle in cycles.cycles] == [INCREMENT, FAILED]


def test_few_documents_are_kept_parsed(place: StateDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = state._ParsedDocuments(5_000)
    monkeypatch.setattr(state, "_documents", documents)
    for number in range(100):
        policy = PolicyName(name=f"p{number}", source_database="s", target_database="t")
        PolicyPublisher(place, policy, TASK).failure("E: broken", "", seconds=0)
        found = place.read(REPLICATION, policy_key(policy), state.CYCLES)
        assert found is not None
        assert found.policy == policy
        assert place.read(REPLICATION, policy_key(policy), state.CYCLES) is found
    assert 2 < len(documents._kept) < 30
    assert documents._size_bytes <= 5_000


def test_thousands_of_failures_are_bounded() -> None:
    cycles: PolicyCycles | None = None
    for number in range(3_000):
        cycles = folding.with_failure(cycles, f"E: {number} {'x' * 9_000}", "", at(number), seconds=0)
    assert cycles is not None
    assert len(cycles.cycles) == folding.CYCLES
    assert max(len(cycle.error) for cycle in cycles.cycles) <= 2_000
    assert cycles.cycles[-1].error.startswith("E: 2999 ")


def test_a_history_has_a_point_per_minute_and_an_end() -> None:
    history: tuple[LagPoint, ...] = ()
    for at_s in range(0, 100_000, 10):
        history = with_point(history, LagPoint(at_s=at_s, events=at_s, seconds=0.0))
    assert len(history) == folding.POINTS
    assert history[-1].events == 99_990
    assert len({point.at_s // 60 for point in history}) == folding.POINTS
    assert history[0].at_s >= 99_990 - 240 * 60


def report(*names: str, differences: tuple[Difference, ...] = ()) -> VerificationReport:
    return VerificationReport(
        database="shop_copy",
        event_id=7,
        differences=differences,
        tables=[
            TableReport(
                name=name,
                kind="managed",
                source_rows=1,
                target_rows=1,
                files=1,
                size_bytes=5,
                digest_equal=True,
            )
            for name in names
        ],
    )


def test_verifications_of_changed_tables_add_up(place: StateDirectory, publisher: PolicyPublisher) -> None:
    publisher.verification(report("a", "b"), whole=True)
    publisher.verification(
        report("b", differences=(Difference(table="b", what="rows", expected="1", found="2"),)), whole=False
    )
    publisher.verification(report(), whole=False)

    def verified() -> dict[str, bool]:
        found = place.read(REPLICATION, policy_key(NAME), state.VERIFIED)
        assert found is not None
        assert all(isinstance(table, VerifiedTable) for table in found.tables)
        return {table.name: table.equal for table in found.tables}

    assert verified() == {"a": True, "b": False}
    publisher.verification(report("b"), whole=True)
    assert verified() == {"b": True}


@pytest.mark.parametrize(
    "name", ["<img src=x onerror=alert(1)>", "../../etc/passwd", "a/b", "%2e%2e", "ä" * 300, "\udcff", ""]
)
def test_any_name_is_a_file_below_the_directory(place: StateDirectory, tmp_path: Path, name: str) -> None:
    policy = PolicyName(name=name, source_database="s", target_database="t")
    PolicyPublisher(place, policy, TASK).failure("E: broken", "", seconds=0)
    (key,) = place.keys(REPLICATION)
    assert [path.parent for path in tmp_path.rglob("*.json")] == [tmp_path / "state" / REPLICATION]
    cycles = place.read(REPLICATION, key, state.CYCLES)
    assert cycles is not None
    assert cycles.policy == policy
    assert all(sign.isalnum() or sign in "-_" for sign in key)


def test_policies_that_differ_have_different_keys() -> None:
    names = {("a", "b"), ("A", "b"), ("a", "c"), ("a_", "b"), ("a/", "b"), ("a.", "b")}
    keys = {policy_key(PolicyName(name=a, source_database="s", target_database=b)).lower() for a, b in names}
    assert len(keys) == len(names)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 2}', '{"version": 1, "cycles": 3}'])
def test_what_cannot_be_read_is_named_and_replaced(
    place: StateDirectory, publisher: PolicyPublisher, tmp_path: Path, content: str
) -> None:
    publisher.failure("E: broken", "", seconds=0)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(content, encoding="utf-8")
    with pytest.raises(StorageError, match=r"cycles\.json cannot be read: .*Remedy: Install") as caught:
        place.read(REPLICATION, policy_key(NAME), state.CYCLES)
    assert caught.value.path == f"file:{path}"
    publisher.failure("E: again", "", seconds=0)
    cycles = place.read(REPLICATION, policy_key(NAME), state.CYCLES)
    assert cycles is not None
    assert [cycle.error for cycle in cycles.cycles] == ["E: again"]


def test_a_field_of_a_later_package_is_no_obstacle(
    place: StateDirectory, publisher: PolicyPublisher, tmp_path: Path
) -> None:
    publisher.failure("E: broken", "", seconds=0)
    (path,) = tmp_path.rglob("*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "colour": "red"}), encoding="utf-8")
    assert place.read(REPLICATION, policy_key(NAME), state.CYCLES) is not None
