"""``hive-federation replicate follow``: runs a cycle whenever the source has changed, until it is stopped.

``SIGTERM`` and ``SIGINT`` end it before the next step of its cycle, with exit status 0. A second signal ends
it at once. Either way, the next one continues.
"""

from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from types import FrameType
from typing import TYPE_CHECKING

from airflow_hive_federation.cli.connecting import common_storage_options, end_for
from airflow_hive_federation.cli.published import CommandState
from airflow_hive_federation.cli.story import Story
from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.progress.cycle_events import (
    CycleFailed,
    CycleFollowed,
    FollowEnded,
    FollowStarted,
)
from airflow_hive_federation.progress.events import (
    Event,
    LockContended,
    LockRemoved,
    TransactionsAborted,
    TransactionsOpen,
)
from airflow_hive_federation.progress.exposition import Exposition
from airflow_hive_federation.progress.metrics import measured
from airflow_hive_federation.progress.words import words
from airflow_hive_federation.replication.policy import ReplicationPolicy
from airflow_hive_federation.waiting import StopRequest

if TYPE_CHECKING:
    from airflow_hive_federation.progress.observers import Observer

_CONNECTIONS = 8
#: The events that become lines.
_SHOWN = (
    CycleFailed,
    CycleFollowed,
    FollowEnded,
    FollowStarted,
    LockContended,
    LockRemoved,
    TransactionsAborted,
    TransactionsOpen,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the action."""
    parser.add_argument(
        "--look-every",
        type=seconds,
        default=0.5,
        metavar="SECONDS",
        help="pause between two looks at the source's last event (default: 0.5)",
    )
    parser.add_argument(
        "--cycle-every",
        type=seconds,
        default=60.0,
        metavar="SECONDS",
        help="run a cycle after this time even without an event, for files of external tables (default: 60)",
    )
    parser.add_argument(
        "--for",
        dest="for_s",
        type=seconds,
        metavar="SECONDS",
        help="end after this time (default: at a signal)",
    )
    parser.add_argument(
        "--cycles",
        type=count,
        metavar="NUMBER",
        help="end after this number of published cycles (default: at a signal)",
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        metavar="PORT",
        help="serve Prometheus metrics at this port, 0 for a free one (default: none are served)",
    )
    parser.add_argument(
        "--metrics-host",
        default="127.0.0.1",
        metavar="HOST",
        help="address at which they are served (default: 127.0.0.1)",
    )


def run(args: argparse.Namespace, policy: ReplicationPolicy, source: str, target: str) -> int:
    """Follow until a signal, or one of the limits.

    :param source: the metastore of the source: URIs, or the id of an Airflow connection.
    :param target: the metastore of the target, likewise.
    """
    # These imports come late, because they import Airflow, which takes seconds.
    from airflow_hive_federation.cli.airflow_logs import logging_to
    from airflow_hive_federation.hooks.small_copies import small_here
    from airflow_hive_federation.hooks.spark import SparkPipelineHook
    from airflow_hive_federation.metastore import MetastorePool
    from airflow_hive_federation.replication.follow import FollowPauses, follow

    story, stop = Story(), StopRequest()
    with ExitStack() as stack:
        stack.enter_context(logging_to(story))
        ends = end_for(source), end_for(target)
        policy = replace(policy, storage_options=common_storage_options(*ends))
        observer = _observer(story, as_json=args.json)
        if args.metrics_port is not None:
            place = args.metrics_host, args.metrics_port
            observer = stack.enter_context(_measured(observer, story, *place))
        spark = SparkPipelineHook(
            args.spark_conn_id, storage_options=policy.storage_options, observer=observer
        )
        stack.enter_context(_stopped_by_signals(stop, spark.on_kill))
        pools = [stack.enter_context(MetastorePool(end.settings, _CONNECTIONS)) for end in ends]
        state = CommandState(policy=policy, command="replicate follow")
        stack.enter_context(state.failures())
        follow(
            pools[0],
            pools[1],
            policy,
            run_copy=small_here(policy, spark.copy_runner(policy)),
            stop=stop,
            pauses=FollowPauses(look_s=args.look_every, at_least_every_s=args.cycle_every),
            for_s=args.for_s,
            cycles=args.cycles,
            threads=_CONNECTIONS,
            observer=state.following(pools[0], pools[1], observer),
        )
    return 0


def _observer(story: Story, *, as_json: bool) -> Observer:
    """Return an observer that writes a line per cycle, wait and failure; as JSON, cycles go to stdout."""

    def observe(event: Event) -> None:
        if as_json and isinstance(event, CycleFollowed):
            print(json.dumps({**asdict(event), "bytes_per_s": round(event.bytes_per_s)}), flush=True)
        elif isinstance(event, _SHOWN):
            story.stage(words(event))

    return observe


@contextmanager
def _measured(observer: Observer, story: Story, host: str, port: int) -> Iterator[Observer]:
    """Serve the metrics of all events, and pass the events on.

    :raises ConfigurationError: the address cannot be used.
    """
    from airflow_hive_federation.gateway.metrics import MetricsServer

    exposition = Exposition()
    measure = measured(exposition)
    try:
        server = MetricsServer(exposition, host, port)
    except (OSError, OverflowError) as error:
        raise ConfigurationError(
            f"Metrics cannot be served at {host}:{port}: {error}.", remedy="Give a port that is free."
        ) from error

    def observe(event: Event) -> None:
        measure(event)
        observer(event)

    story.stage(f"Metrics are at http://{host}:{server.port}/metrics")
    try:
        yield observe
    finally:
        server.close()


@contextmanager
def _stopped_by_signals(stop: StopRequest, end_job: Callable[[], None]) -> Iterator[None]:
    """Request the stop at the first signal, and let the second one end the process as usual.

    :param end_job: ends a Spark job at work; its files are kept, and the next job continues.
    """
    former = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in former.items():
            signal.signal(number, handler)

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        restore()
        stop.make()
        end_job()

    for number in former:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        restore()


def seconds(text: str) -> float:
    """Return a number of seconds above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is no number of seconds above 0")
    return value


def count(text: str) -> int:
    """Return a number above 0."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return value
