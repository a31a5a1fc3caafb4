"""Fixtures that start peers."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.metastore_peers import DEAD_URI, Peer


@pytest.fixture
def peers() -> Iterator[Callable[..., Peer]]:
    """Start peers: ``peers(behave)``. All end with the test."""
    started: list[Peer] = []

    def start(behave: Callable[[socket.socket], None], **options: Any) -> Peer:
        started.append(Peer(behave, **options))
        return started[-1]

    yield start
    for peer in started:
        peer.close()


@pytest.fixture
def dead_uri() -> str:
    """A URI behind which nothing listens."""
    return DEAD_URI
