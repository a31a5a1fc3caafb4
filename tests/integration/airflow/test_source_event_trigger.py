"""The trigger of an asset's watcher fires once per change of its source; a restart loses none."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
from airflow.sdk import BaseNotifier
from airflow.triggers.base import TriggerEvent

from airflow_hive_federation.hooks.compat import AirflowException
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.notifications.replication import ReplicaNotifier
from airflow_hive_federation.triggers.replication import SourceEventTrigger
from tests.support.increment_site import DATABASE, Site, site
from tests.support.small_source import connected

__all__ = ["site"]


def test_a_change_fires_once_and_a_restart_loses_none(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    for side, port in (("SOURCE", site.source.port), ("TARGET", site.target.port), ("AWAY", 1)):
        connection = {"conn_type": "hive_federation", "host": "127.0.0.1", "port": port}
        monkeypatch.setenv(f"AIRFLOW_CONN_{side}", json.dumps(connection))
    trigger = SourceEventTrigger(
        policy=site.policy, source_conn_id="source", target_conn_id="target", poll_s=0.02
    )
    path, fields = trigger.serialize()
    assert path.endswith(".SourceEventTrigger")
    fields = json.loads(json.dumps(fields))

    async def watched() -> None:
        first = SourceEventTrigger(**fields).run()
        # Nothing is published: a bootstrap is due, and only one.
        assert await payload_of(first) == {"policy": DATABASE, "database": DATABASE, "event_id": last(site)}
        await asyncio.to_thread(site.bootstrap)
        await asyncio.to_thread(of_another_database, site)
        waiting = await unfired(first)
        await asyncio.to_thread(site.commit)
        assert (await waiting).payload["event_id"] == last(site)
        await closed(first, await unfired(first))
        # The target still lags when another triggerer takes over.
        second = SourceEventTrigger(**fields).run()
        assert (await payload_of(second))["event_id"] == last(site)
        await closed(second, await unfired(second))
        await asyncio.to_thread(assert_notifiers_describe_the_lag, fields)
        await asyncio.to_thread(site.cycle)
        third = SourceEventTrigger(**fields).run()
        waiting = await unfired(third)
        await asyncio.to_thread(site.commit)
        assert (await waiting).payload["event_id"] == last(site)
        await closed(third, await unfired(third))

    asyncio.run(asyncio.wait_for(watched(), 300))


def assert_notifiers_describe_the_lag(fields: dict[str, Any]) -> None:
    ends = {name: fields[name] for name in ("policy", "source_conn_id", "target_conn_id")}
    sent: list[str] = []

    class Kept(BaseNotifier):
        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

        def notify(self, context: Any) -> None:
            sent.append(self.text)

        async def async_notify(self, context: Any) -> None:
            sent.append(f"async: {self.text}")

    notifier = ReplicaNotifier(**ends, through=Kept)
    notifier({"exception": AirflowException("VerificationError: Replica differs.")})
    assert re.fullmatch(rf"{DATABASE} is behind by \d+ events, \S+ s. VerificationError: Replica.*", sent[0])
    asyncio.run(notifier.async_notify({}))  # type: ignore[arg-type]
    assert sent[1].startswith(f"async: {DATABASE} is behind by")
    ReplicaNotifier(**ends, through=Kept, only_above="1h")({})
    away = ReplicaNotifier(**{**ends, "target_conn_id": "away"}, through=Kept)
    away({})
    assert len(sent) == 3
    assert sent[2].startswith(f"The replica of {DATABASE} cannot be looked at: ")


def last(made: Site) -> int:
    with connected(made.source) as client:
        return client.get_current_notification_event_id()


def of_another_database(made: Site) -> None:
    with connected(made.source) as client:
        client.create_database(types.Database(name=f"{DATABASE}_other"))
        client.drop_database(f"{DATABASE}_other", delete_data=True)


async def payload_of(events: AsyncIterator[TriggerEvent]) -> Any:
    return (await anext(events)).payload


async def unfired(events: AsyncIterator[TriggerEvent]) -> asyncio.Task[TriggerEvent]:
    """Return the wait for the next event, after several looks that found none."""
    looks = 0
    look = SourceEventTrigger._look

    def counted(self: SourceEventTrigger, *watch: Any) -> Any:
        nonlocal looks
        looked = look(self, *watch)
        looks += 1
        return looked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SourceEventTrigger, "_look", counted)
        waiting = asyncio.ensure_future(anext(events))
        while looks < 3:
            await asyncio.sleep(0.01)
    assert not waiting.done()
    return waiting  # type: ignore[return-value]


async def closed(events: Any, waiting: asyncio.Task[TriggerEvent]) -> None:
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await events.aclose()
