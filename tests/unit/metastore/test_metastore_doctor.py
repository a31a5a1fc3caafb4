"""The doctor's findings from a metastore's answers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_hive_federation.metastore.doctor import (
    LISTENER,
    TRANSACTION_MANAGER,
    Facts,
    Finding,
    assess,
)

SOUND = Facts(
    uri="thrift://h:1",
    version="4.2.1",
    last_event_id=5,
    settings={
        "hive.metastore.transactional.event.listeners": f"a.B,{LISTENER}",
        "hive.metastore.dml.events": "true",
        "hive.metastore.event.db.listener.timetolive": "7d",
        "hive.repl.event.db.listener.timetolive": "10d",
        "hive.compactor.initiator.on": "true",
        "hive.compactor.cleaner.on": "true",
        "hive.txn.use.minhistorywriteid": "false",
        "hive.compactor.clean.aborts.using.cleaner": "false",
        "hive.txn.manager": TRANSACTION_MANAGER,
        "hive.support.concurrency": "true",
        "hive.stats.fetch.bitvector": "true",
        "hive.metastore.warehouse.dir": "hdfs://h/warehouse",
        "hive.metastore.warehouse.external.dir": "hdfs://h/external_warehouse",
    },
)


def changed(**settings: str) -> Facts:
    return replace(SOUND, settings={**SOUND.settings, **{f"hive.{k}": v for k, v in settings.items()}})


def troubled(facts: Facts) -> list[Finding]:
    return [finding for finding in assess(facts) if finding.state != "ok"]


def test_a_sound_metastore() -> None:
    assert troubled(SOUND) == []


def test_an_older_metastore_may_be_a_source() -> None:
    (finding,) = troubled(replace(SOUND, version="3.0.0"))
    assert "replicated from Hive 3.1 and 4, and to Hive 4" in finding.remedy


def test_a_metastore_that_does_not_answer_has_one_finding() -> None:
    (finding,) = assess(Facts(problem="refused", remedy="start it"))
    assert (finding.name, finding.state, finding.remedy) == ("reachable", "error", "start it")


@pytest.mark.parametrize(
    ("facts", "name", "state"),
    [
        (replace(SOUND, version="2.3.10"), "version", "warning"),
        (replace(SOUND, version="fb303"), "version", "unknown"),
        (replace(SOUND, acid_problem="no capabilities"), "capabilities", "error"),
        (replace(SOUND, last_event_id=None), "notification listener", "error"),
        (changed(**{"metastore.transactional.event.listeners": ""}), "notification listener", "error"),
        (changed(**{"metastore.dml.events": "false"}), "dml events", "warning"),
        (changed(**{"metastore.event.db.listener.timetolive": "3600s"}), "event ttl", "warning"),
        (changed(**{"metastore.event.db.listener.timetolive": "soon"}), "event ttl", "unknown"),
        (changed(**{"txn.manager": "DummyTxnManager"}), "transaction manager", "warning"),
        (changed(**{"support.concurrency": "false"}), "transaction manager", "warning"),
        (changed(**{"compactor.initiator.on": "false"}), "compactor initiator", "warning"),
        (changed(**{"compactor.cleaner.on": "false"}), "compactor cleaner", "warning"),
        (changed(**{"txn.use.minhistorywriteid": "true"}), "cleaner beside transactions", "warning"),
        (changed(**{"compactor.clean.aborts.using.cleaner": "true"}), "cleaner beside aborts", "warning"),
        (changed(**{"stats.fetch.bitvector": "false"}), "statistics", "warning"),
        (changed(**{"metastore.warehouse.dir": "file:/home/a/.hive/warehouse"}), "warehouse", "warning"),
        (changed(**{"metastore.warehouse.external.dir": "s3a://b/_x"}), "warehouse", "warning"),
        (
            changed(**{"metastore.warehouse.dir": "", "metastore.warehouse.external.dir": ""}),
            "warehouse",
            "unknown",
        ),
    ],
)
def test_what_is_wrong_is_named(facts: Facts, name: str, state: str) -> None:
    (finding,) = troubled(facts)
    assert (finding.name, finding.state) == (name, state)
    assert finding.remedy or state == "unknown"


@pytest.mark.parametrize(
    ("version", "value", "state"),
    [
        ("4.2.1", None, "warning"),
        ("5.0.0", None, "warning"),
        ("5.0.0", "true", "warning"),
        ("fb303", "true", "warning"),
        ("fb303", None, "unknown"),
        ("3.1.3", None, "ok"),
        ("fb303", "false", "ok"),
    ],
)
def test_the_cleaner_by_version_and_setting(version: str, value: str | None, state: str) -> None:
    keys = ("hive.txn.use.minhistorywriteid", "hive.compactor.clean.aborts.using.cleaner")
    settings = {} if value is None else dict.fromkeys(keys, value)
    checks = {check.name: check for check in assess(Facts(version=version, settings=settings))}
    assert checks["cleaner beside transactions"].state == state
    assert checks["cleaner beside aborts"].state == state


def test_missing_settings_are_unknown() -> None:
    states = {finding.name: finding.state for finding in assess(replace(SOUND, settings={}))}
    assert {name for name, state in states.items() if state == "unknown"} == {
        "notification listener",
        "dml events",
        "event ttl",
        "transaction manager",
        "compactor initiator",
        "compactor cleaner",
        "statistics",
        "warehouse",
    }
