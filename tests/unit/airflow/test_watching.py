"""Triggers of watchers wait as all others do, and outlive every error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_hive_federation.errors import ConfigurationError, MetastoreUnreachableError
from airflow_hive_federation.triggers.remote import RemoteChangesTrigger
from airflow_hive_federation.triggers.replication import SourceEventTrigger
from airflow_hive_federation.triggers.watching import WatchTrigger

AWAY = MetastoreUnreachableError("a:1 does not answer.", remedy="Wait.")
REFUSED = ConfigurationError("a:1 is no metastore.", remedy="Name another one.")
Outcome = Mapping[str, object] | Exception


class Scripted(WatchTrigger):
    """A trigger whose looks have the outcomes of a script."""

    def __init__(self, *outcomes: Outcome) -> None:
        super().__init__(poll_s=0.0)
        self.outcomes = list(outcomes)
        self.began_anew = 0

    def _look(self) -> Mapping[str, object]:
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _begin_anew(self) -> None:
        self.began_anew += 1


def payloads(trigger: WatchTrigger, number: int) -> list[object]:
    async def first() -> list[object]:
        events: Any = trigger.run()
        found = [(await anext(events)).payload for _ in range(number)]
        await events.aclose()
        return found

    return asyncio.run(asyncio.wait_for(first(), 60))


def test_each_change_is_one_event() -> None:
    assert payloads(Scripted({}, {"n": 1}, {}, {}, {"n": 2}), 2) == [{"n": 1}, {"n": 2}]


def test_a_silence_has_no_end_and_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    trigger = Scripted(*[AWAY] * 40, {}, AWAY, {"n": 1})
    with caplog.at_level(logging.WARNING):
        assert payloads(trigger, 1) == [{"n": 1}]
    assert trigger.began_anew == 0
    assert [record.getMessage().startswith("Trying again: ") for record in caplog.records] == [True, True]


def test_an_error_that_would_stay_begins_anew_and_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    trigger = Scripted(REFUSED, REFUSED, REFUSED, {"n": 1}, REFUSED, {"n": 2})
    assert payloads(trigger, 2) == [{"n": 1}, {"n": 2}]
    assert trigger.began_anew == 4
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning" in line]
    assert sum("Watching anew" in line for line in warnings) == 2


@pytest.mark.parametrize(
    "make",
    [
        lambda conn_id: RemoteChangesTrigger(metastore_conn_id=conn_id, remote="far", poll_s=0.01),
        lambda conn_id: SourceEventTrigger(
            policy={"name": "shop", "source_database": "shop", "dump_root": "/dumps"},
            source_conn_id=conn_id,
            target_conn_id=conn_id,
            poll_s=0.01,
        ),
    ],
)
def test_watchers_look_again_when_metastores_are_away(
    make: Callable[[str], WatchTrigger],
    connection: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both triggers stand on the common wait: a metastore that is away for ever costs one warning."""
    conn_id = connection(host="127.0.0.1", port=1)
    trigger = make(conn_id)
    path, fields = trigger.serialize()
    assert path.endswith(f".{type(trigger).__name__}")
    again = type(trigger)(**fields)
    assert again.serialize() == (path, fields)
    step, steps = type(trigger)._look, 0

    def look(self: WatchTrigger) -> Mapping[str, object]:
        nonlocal steps
        steps += 1
        return step(self)

    monkeypatch.setattr(type(trigger), "_look", look)

    async def watched() -> None:
        waiting = asyncio.ensure_future(anext(again.run()))
        while steps < 4 and not waiting.done():
            await asyncio.sleep(0.01)
        assert not waiting.done()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    with caplog.at_level(logging.WARNING):
        asyncio.run(asyncio.wait_for(watched(), 120))
    assert sum("Trying again" in record.getMessage() for record in caplog.records) == 1
