"""A gateway on real sockets, before a peer that answers as a metastore does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.rules import Rules
from airflow_hive_federation.gateway.thrift_front import ThriftFront
from airflow_hive_federation.gateway.thrift_settings import ThriftSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings
from tests.support.gateways import RawClient, Running
from tests.support.metastore_peers import Peer


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Yield a stack that is closed at the end of a test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def peer(stack: ExitStack) -> Callable[..., Peer]:
    """Make a listening peer."""

    def make(behave: Any, **options: Any) -> Peer:
        made = Peer(behave, **options)
        stack.callback(made.close)
        return made

    return make


@pytest.fixture
def gateway(stack: ExitStack) -> Callable[..., Running]:
    """Start a gateway before the metastore behind some URIs."""

    def make(
        *uris: str,
        rules: Rules | None = None,
        aliases: dict[str, str] | None = None,
        front: dict[str, Any] | None = None,
        reading: str | None = None,
        settings: dict[str, Any] | None = None,
        **upstream: Any,
    ) -> Running:
        made = Upstream("main", MetastoreSettings(uris=uris, **(settings or {})), **upstream)
        other = None if reading is None else Upstream("reading", MetastoreSettings(uris=(reading,)))
        target = Metastore(made, other)
        stack.callback(target.close)
        handler = Gateway(target, rules, aliases=aliases)
        started = ThriftFront(handler, ThriftSettings(**{"port": 0, **(front or {})})).start()
        stack.callback(started.stop, 0)
        return Running(handler, made, started)

    return make


@pytest.fixture
def client(stack: ExitStack) -> Callable[..., MetastoreClient]:
    """A client of ours."""

    def make(uri: str, **settings: Any) -> MetastoreClient:
        return stack.enter_context(MetastoreClient(MetastoreSettings(uris=(uri,), **settings)))

    return make


@pytest.fixture
def raw(stack: ExitStack) -> Callable[[Running], RawClient]:
    """A socket to a gateway."""

    def make(running: Running) -> RawClient:
        made = RawClient(running.front.address)
        stack.callback(made.close)
        return made

    return make
