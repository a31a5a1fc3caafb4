"""Remotes: making a remote database, refreshing it, reading its tables, and a metastore behind SSH.

A remote database is measured beside the bare writes that any way of making it needs, with as many threads.
Questions about remote tables are put to a link and to Waggle Dance, and calls through one SSH hop and without
it, in turns.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from airflow_hive_federation.catalog.hive import POOL_SIZE
from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreClient, MetastorePool, MetastoreSettings
from airflow_hive_federation.metastore.idl import types
from airflow_hive_federation.remotes.session import Remotes
from airflow_hive_federation.remotes.statement import Kind, Name
from airflow_hive_federation.tunnel.route import TunnelSettings
from airflow_hive_federation.tunnel.tunnel import Tunnel
from benchmarks import results
from benchmarks.waggle_dance import PREFIX, waggle_dance

DATABASE = "remotes"
PARTITIONS = 10
_FEDERATED = 200
_CALLS = 1000
_WARM_UP = 100
_STALL_S = 0.04
_TEXT = "org.apache.hadoop.mapred.TextInputFormat"
_KEEP = {"DO_NOT_UPDATE_STATS": "true"}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The size of the remote database, and the directory of a measurement.

    :param tables: of the remote database, each with ten partitions.
    :param directory: for SSH servers.
    :param say: receives one line per step.
    """

    tables: int
    directory: Path
    say: Callable[[str], None]


def run(setting: Setting, parts: Sequence[str]) -> Iterator[results.Result]:
    """Measure the chosen parts."""
    with EmbeddedMetastore.start("far") as far:
        if "federation" in parts:
            with EmbeddedMetastore.start("near") as near:
                yield from _federation(setting, far, near)
        if {"remote-create", "remote-refresh"} & set(parts):
            yield from _databases(setting, far)
        if "tunnel" in parts:
            yield from _tunnel(setting, far)


def _databases(setting: Setting, far: EmbeddedMetastore) -> Iterator[results.Result]:
    """Both write into a new metastore: the more a metastore on Derby has, the longer each write takes."""
    say = setting.say
    say(f"{setting.tables} tables with {PARTITIONS} partitions each are made at the remote")
    _write(far, DATABASE, setting.tables, far.external_warehouse)
    say("the same by bare calls")
    with EmbeddedMetastore.start("bare") as bare:
        raw_s = _write(bare, DATABASE, setting.tables, far.external_warehouse)
    with EmbeddedMetastore.start("near") as near:
        yield from _remote_database(setting, far, near, raw_s)


def _remote_database(
    setting: Setting, far: EmbeddedMetastore, near: EmbeddedMetastore, raw_s: float
) -> Iterator[results.Result]:
    say = setting.say
    with Remotes(MetastoreSettings(uris=(near.uri,))) as remotes:
        say("the same by one statement")
        begun = time.perf_counter()
        remotes.run(f"CREATE REMOTE DATABASE {DATABASE} VIA 'thrift' 'hive.metastore.uris' = '{far.uri}'")
        ours_s = time.perf_counter() - begun
        work = f"a remote database of {setting.tables} tables x {PARTITIONS} partitions"
        yield results.faster(
            "remote-create", work, ours_s=ours_s, peer="the bare writes", peer_s=raw_s, at_least=0.8
        )
        name = Name(database=DATABASE)
        with MetastoreClient(MetastoreSettings(uris=(far.uri,))) as client:
            client.add_partitions([_partition(DATABASE, "t0", "new", far.external_warehouse)])
        begun = time.perf_counter()
        report = remotes.refresh(Kind.DATABASE, name)
        refresh_s = time.perf_counter() - begun
        if (report.whole, report.partitions_added) != (False, 1):
            raise SystemExit(f"The refresh did something else: {report}")
        begun = time.perf_counter()
        remotes.refresh(Kind.DATABASE, name, whole=True)
        whole_s = time.perf_counter() - begun
    yield results.seconds(
        "remote-refresh",
        f"one new partition among {setting.tables} tables",
        ours_s=refresh_s,
        peer="comparing everything",
        peer_s=whole_s,
        at_most_s=1,
    )


def _federation(
    setting: Setting, far: EmbeddedMetastore, near: EmbeddedMetastore
) -> Iterator[results.Result]:
    """The same questions about tables of the far metastore: of their links, and through Waggle Dance."""
    setting.say(f"{_FEDERATED} tables are made and linked; Waggle Dance starts")
    with MetastoreClient(MetastoreSettings(uris=(far.uri,))) as client:
        client.create_database(types.Database(name="federated"))
        for number in range(_FEDERATED):
            client.create_table(_table("federated", f"t{number}", far.external_warehouse), environment=_KEEP)
    with Remotes(MetastoreSettings(uris=(near.uri,))) as remotes:
        remotes.run(f"CREATE REMOTE DATABASE federated 'hive.metastore.uris' = '{far.uri}'")
    with (
        waggle_dance(near.uri, far.uri, setting.directory) as (uri, _),
        MetastoreClient(MetastoreSettings(uris=(near.uri,))) as local,
        MetastoreClient(MetastoreSettings(uris=(uri,))) as federated,
    ):
        sides = {"ours": (local, "federated"), "peer": (federated, f"{PREFIX}federated")}
        for work, ask in (("get_table", _get_table), (f"listings of {_FEDERATED} tables", _list_tables)):
            medians = _in_turns({name: partial(ask, *side) for name, side in sides.items()})
            yield results.faster(
                "federation",
                f"{_CALLS:,} {work}",
                ours_s=medians["ours"] * _CALLS,
                peer="Waggle Dance",
                peer_s=medians["peer"] * _CALLS,
                at_least=None,
            )


def _get_table(client: MetastoreClient, database: str, number: int) -> None:
    client.get_table(database, f"t{number % _FEDERATED}")


def _list_tables(client: MetastoreClient, database: str, _number: int) -> None:
    # Waggle Dance knows no names with a catalog, as MetastoreClient.list_tables sends them.
    client.call("get_all_tables", database)


def _in_turns(questions: Mapping[str, Callable[[int], object]]) -> dict[str, float]:
    """Ask all of them again and again; return each one's median in seconds."""
    times: dict[str, list[float]] = {name: [] for name in questions}
    for number in range(_CALLS + _WARM_UP):
        for name, question in questions.items():
            begun = time.perf_counter()
            question(number)
            if number >= _WARM_UP:
                times[name].append(time.perf_counter() - begun)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _write(metastore: EmbeddedMetastore, database: str, tables: int, root: Path) -> float:
    """Make tables and partitions by bare calls; return the seconds."""
    with MetastorePool(MetastoreSettings(uris=(metastore.uri,)), POOL_SIZE) as pool:
        with pool.client() as client:
            client.create_database(types.Database(name=database))

        def read_table(number: int) -> None:
            with pool.client() as client:
                client.create_table(_table(database, f"t{number}", root), environment=_KEEP)
                partitions = [
                    _partition(database, f"t{number}", str(value), root) for value in range(PARTITIONS)
                ]
                client.add_partitions(partitions, environment=_KEEP)

        begun = time.perf_counter()
        with ThreadPoolExecutor(POOL_SIZE) as threads:
            list(threads.map(read_table, range(tables)))
        return time.perf_counter() - begun


def _tunnel(setting: Setting, far: EmbeddedMetastore) -> Iterator[results.Result]:
    from tests.support.sshd import start_sshd

    server = start_sshd(setting.directory / "sshd")
    try:
        with MetastoreClient(MetastoreSettings(uris=(far.uri,))) as client:
            client.create_table(_table("default", "asked", far.external_warehouse))
        route = TunnelSettings(hops=(server.hop,), known_hosts=(str(server.known_hosts),))
        with (
            Tunnel(route) as tunnel,
            MetastoreClient(MetastoreSettings(uris=(far.uri,))) as direct,
            MetastoreClient(MetastoreSettings(uris=(far.uri,), dialer=tunnel)) as tunnelled,
        ):
            times: dict[str, list[float]] = {"direct": [], "tunnelled": []}
            for number in range(_CALLS + _WARM_UP):
                for name, client in (("direct", direct), ("tunnelled", tunnelled)):
                    begun = time.perf_counter()
                    client.get_table("default", "asked")
                    if number >= _WARM_UP:
                        times[name].append(time.perf_counter() - begun)
    finally:
        server.stop()
    stalls = {name: sum(second >= _STALL_S for second in seconds) for name, seconds in times.items()}
    median = {name: statistics.median(seconds) * 1000 for name, seconds in times.items()}
    setting.say(f"medians {median} ms; calls of 40 ms and more {stalls}")
    yield results.beside_limit(
        "tunnel",
        f"{_CALLS:,} get_table through one SSH hop",
        ours_s=statistics.median(times["tunnelled"]) * _CALLS,
        peer="without",
        peer_s=statistics.median(times["direct"]) * _CALLS,
        at_most=1.2,
    )


def _table(database: str, name: str, root: Path) -> types.Table:
    return types.Table(
        dbName=database,
        tableName=name,
        owner="root",
        sd=_storage(f"file:{root}/{name}"),
        partitionKeys=[types.FieldSchema(name="p", type="string")],
        parameters={"EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )


def _partition(database: str, table: str, value: str, root: Path) -> types.Partition:
    return types.Partition(
        dbName=database,
        tableName=table,
        values=[value],
        sd=_storage(f"file:{root}/{table}/p={value}"),
        parameters={},
    )


def _storage(location: str) -> Any:
    return types.StorageDescriptor(
        cols=[types.FieldSchema(name=f"c{number}", type="string") for number in range(10)],
        location=location,
        inputFormat=_TEXT,
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        numBuckets=-1,
        serdeInfo=types.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
