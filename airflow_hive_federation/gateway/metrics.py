"""Counts a gateway's calls and serves the counts in Prometheus' text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

#: Upper bounds of the histogram of call times, in seconds.
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
Gauge = Callable[[], Mapping[str, float]]


class Metrics:
    """Counters since the start of the process, for any number of threads.

    :param labels: labels of every series, for instance the number of the process.
    """

    def __init__(self, **labels: str) -> None:
        self._labels = labels
        self._lock = threading.Lock()
        self._calls: dict[tuple[str, str, str], int] = defaultdict(int)
        self._bytes: dict[tuple[str, str], int] = defaultdict(int)
        self._times: dict[str, list[int]] = {}
        self._seconds: dict[str, float] = defaultdict(float)
        self._gauges: list[tuple[str, str, str, str, Gauge]] = []

    def call(self, front: str, method: str, status: str, *, seconds: float, taken: int, given: int) -> None:
        """Count a call.

        :param method: a method that exists, or ``other``: clients must not be able to create series at will.
        :param taken: bytes of the request.
        :param given: bytes of the answer.
        """
        place = bisect_left(BUCKETS_S, seconds)
        with self._lock:
            self._calls[front, method, status] += 1
            self._bytes[front, "in"] += taken
            self._bytes[front, "out"] += given
            if front not in self._times:
                self._times[front] = [0] * (len(BUCKETS_S) + 1)
            self._times[front][place] += 1
            self._seconds[front] += seconds

    def gauge(self, name: str, help_text: str, label: str, read: Gauge, *, total: bool = False) -> None:
        """Add a metric that :meth:`text` reads at each call.

        :param label: name of the label whose values are the keys that ``read`` returns.
        :param total: the metric is a counter, which only grows.
        """
        self._gauges.append((name, help_text, "counter" if total else "gauge", label, read))

    def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        lines: list[str] = []
        with self._lock:
            calls, sizes = dict(self._calls), dict(self._bytes)
            times = {front: list(counts) for front, counts in self._times.items()}
            seconds = dict(self._seconds)
        lines += _head("calls_total", "Calls answered.", "counter")
        for (front, method, status), count in sorted(calls.items()):
            lines.append(self._line("calls_total", count, front=front, method=method, status=status))
        lines += _head("bytes_total", "Bytes of messages.", "counter")
        for (front, direction), count in sorted(sizes.items()):
            lines.append(self._line("bytes_total", count, front=front, direction=direction))
        lines += _head("call_seconds", "Time from a whole call to its whole answer.", "histogram")
        for front, counts in sorted(times.items()):
            below = 0
            for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], counts, strict=True):
                below += count
                lines.append(self._line("call_seconds_bucket", below, front=front, le=bound))
            lines.append(self._line("call_seconds_sum", seconds[front], front=front))
            lines.append(self._line("call_seconds_count", below, front=front))
        for name, help_text, kind, label, read in self._gauges:
            lines += _head(name, help_text, kind)
            lines += [self._line(name, value, **{label: key}) for key, value in sorted(read().items())]
        return "\n".join(lines) + "\n"

    def _line(self, name: str, value: float, **labels: str) -> str:
        inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**self._labels, **labels}.items())
        # All digits count: a sum grows by small steps for as long as the process lives.
        return f"hive_gateway_{name}{{{inside}}} {repr(value).removesuffix('.0')}"


class Texts(Protocol):
    """Metrics in Prometheus' text format."""

    def text(self) -> str:
        """Return all metrics."""
        ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True


class MetricsServer:
    """Serves the metrics at ``/metrics``, and ``/healthz`` while the process works.

    :param reserved: another process holds the port for this one (``SO_REUSEPORT``).
    """

    def __init__(self, metrics: Texts, host: str, port: int, *, reserved: bool = False) -> None:
        bodies: dict[str, Callable[[], str]] = {"/metrics": metrics.text, "/healthz": lambda: "ok\n"}

        class Answer(BaseHTTPRequestHandler):
            timeout = 10

            def do_GET(self) -> None:
                body = bodies.get(self.path)
                data = b"not found\n" if body is None else body().encode()
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_args: object) -> None:
                return

        self._server = _Server((host, port), Answer, bind_and_activate=False)
        # The parent process has bound this port already, and holds it for its workers.
        self._server.allow_reuse_port = reserved
        try:
            self._server.server_bind()
            self._server.server_activate()
        except BaseException:
            self._server.server_close()
            raise
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    @property
    def port(self) -> int:
        """Port at which the server listens."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


def _head(name: str, text: str, kind: str) -> list[str]:
    return [f"# HELP hive_gateway_{name} {text}", f"# TYPE hive_gateway_{name} {kind}"]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
