"""A server of SASL frames."""

from __future__ import annotations

import struct

from airflow_hive_federation.metastore.channel import Deadline


class Server:
    """Answers with bytes prepared; keeps what it is sent."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = b"".join(answers)
        self.received = b""

    def send(self, request: bytes, deadline: Deadline) -> None:
        self.received += request

    def receive(self, size: int, deadline: Deadline) -> bytes:
        if not self.answers:
            raise ConnectionResetError("closed")
        # Never as much as is requested.
        size = max(1, size // 2)
        taken, self.answers = self.answers[:size], self.answers[size:]
        return taken

    def is_stale(self) -> bool:
        return False

    def has_more(self) -> bool:
        return False

    def close(self) -> None:
        pass


def message(status: int, text: bytes = b"") -> bytes:
    return struct.pack("!BI", status, len(text)) + text
