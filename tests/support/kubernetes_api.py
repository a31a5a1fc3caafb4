"""A stand-in for the API server of Kubernetes, which accepts every object and starts no pod."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class KubernetesApi:
    """The objects that clients have sent.

    :param objects: by kind, in the order of their arrival.
    :param requests: the path and the body of each request that has sent one.
    """

    master: str
    objects: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def the(self, kind: str) -> dict[str, Any]:
        """Return the last object of a kind that has one name only."""
        found = self.objects[kind]
        assert len({sent["metadata"]["name"] for sent in found}) == 1, found
        return found[-1]


@contextmanager
def kubernetes_api() -> Iterator[KubernetesApi]:
    """Serve the API on a port of the loopback."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.api = KubernetesApi(f"k8s://http://127.0.0.1:{server.server_port}")  # type: ignore[attr-defined]
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.api  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Have no objects but those that are sent."""
        self._answer(404, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404})

    def do_POST(self) -> None:
        """Create an object."""
        self._accept(201)

    def do_PATCH(self) -> None:
        """Apply an object; a body of JSON is one of YAML, too."""
        self._accept(200)

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _accept(self, code: int) -> None:
        api: KubernetesApi = self.server.api  # type: ignore[attr-defined]
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        api.requests.append((self.path, text))
        sent = json.loads(text)
        api.objects.setdefault(sent["kind"], []).append(sent)
        metadata = {**sent["metadata"], "uid": f"uid-{len(api.requests)}", "resourceVersion": "1"}
        self._answer(code, {**sent, "metadata": metadata})

    def _answer(self, code: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
