"""A front of Azurite that lists blobs in Azure's order.

Azure lists blobs and prefixes by name. Azurite lists all prefixes first, and Hadoop's driver then counts a
directory twice that has both a prefix and the empty blob of a directory.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit
from xml.etree import ElementTree


@contextmanager
def azurite_front(azurite: str) -> Iterator[str]:
    """Run the front in this process, and yield its host and port.

    :param azurite: the URL of Azurite.
    """
    netloc = urlsplit(azurite).netloc

    class Handler(_Front):
        behind = netloc

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behind: str

    def log_message(self, *_args: object) -> None:
        """Write nothing."""

    def _forward(self) -> None:
        sent = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = HTTPConnection(self.behind, timeout=60)
        try:
            connection.request(self.command, self.path, sent or None, dict(self.headers))
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if self.command == "GET" and "comp=list&" in self.path and answer.status == 200:
            body = by_name(body)
        self.send_response_only(answer.status, answer.reason)
        length = answer.headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(body))
        for name, value in answer.headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection", "keep-alive"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _forward  # noqa: N815 - http.server's names


def by_name(listing: bytes) -> bytes:
    """Return the answer to a request for a list with its blobs and prefixes in the order of their names."""
    root = ElementTree.fromstring(listing)
    blobs = root.find("Blobs")
    if blobs is not None:
        blobs[:] = sorted(blobs, key=lambda entry: entry.findtext("Name") or "")
    return ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
