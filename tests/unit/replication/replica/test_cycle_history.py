from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from airflow_hive_federation.model.side_parameters import without_side_parameters
from airflow_hive_federation.replication.replica.cycle_history import (
    BOOTSTRAP,
    IDLE,
    INCREMENT,
    CycleRecord,
    read_cycles,
    with_cycle,
)
from airflow_hive_federation.replication.replica.markers import CYCLES


def record(kind: str, event_id: int, **facts: int) -> CycleRecord:
    return CycleRecord(kind=kind, event_id=event_id, ended_s=1_700_000_000 + event_id, **facts)


def test_cycles_come_back_in_their_order() -> None:
    parameters: dict[str, str] = {"other": "x"}
    made = [record(BOOTSTRAP, 3, size_bytes=10), record(INCREMENT, 9, events=6)]
    for cycle in made:
        parameters |= with_cycle(parameters, cycle)
    assert read_cycles(parameters) == made
    assert without_side_parameters(parameters) == {"other": "x"}


def test_idle_cycles_take_one_place() -> None:
    parameters: dict[str, str] = {}
    for event_id in range(5):
        parameters |= with_cycle(parameters, record(IDLE, event_id))
    parameters |= with_cycle(parameters, record(INCREMENT, 7))
    parameters |= with_cycle(parameters, record(IDLE, 8))
    assert [(cycle.kind, cycle.event_id, cycle.cycles) for cycle in read_cycles(parameters)] == [
        (IDLE, 4, 5),
        (INCREMENT, 7, 1),
        (IDLE, 8, 1),
    ]


def test_the_oldest_give_way_to_what_a_parameter_can_hold() -> None:
    parameters: dict[str, str] = {}
    for event_id in range(10**8, 10**8 + 200):
        cycle = record(INCREMENT, event_id, events=10**6, files=10**6, size_bytes=10**15, transactions=10**5)
        parameters |= with_cycle(parameters, cycle)
        assert len(parameters[CYCLES]) <= 4000
    read = read_cycles(parameters)
    assert len(read) > 20
    assert [cycle.event_id for cycle in read] == list(range(10**8 + 200 - len(read), 10**8 + 200))


@pytest.mark.parametrize("text", ["", "nonsense", "7", "[7]", '[{"kind": "idle"}]', "{}"])
def test_what_cannot_be_read_stops_nothing(text: str) -> None:
    assert read_cycles({CYCLES: text}) == []
    assert len(read_cycles(with_cycle({CYCLES: text}, record(INCREMENT, 1)))) == 1


@pytest.mark.parametrize("field", asdict(record(INCREMENT, 1)))
def test_a_record_with_a_field_of_another_type_is_not_read(field: str) -> None:
    written = asdict(record(INCREMENT, 1))
    assert read_cycles({CYCLES: json.dumps([written])}) == [record(INCREMENT, 1)]
    assert read_cycles({CYCLES: json.dumps([{**written, field: [1]}])}) == []


def test_a_later_versions_fields_are_passed_over() -> None:
    text = '[{"kind": "idle", "event_id": 1, "ended_s": 2, "mood": "fine"}]'
    assert read_cycles({CYCLES: text}) == [CycleRecord(kind=IDLE, event_id=1, ended_s=2)]


def test_throughput() -> None:
    assert CycleRecord(kind=INCREMENT, event_id=1, ended_s=1, seconds=2.0, size_bytes=10).bytes_per_s == 5.0
    assert CycleRecord(kind=IDLE, event_id=1, ended_s=1).bytes_per_s == 0.0
