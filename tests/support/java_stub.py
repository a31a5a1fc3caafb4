"""Apache's own Java stub of Hive's gRPC service, in a JVM."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airflow_hive_federation.embedded.jars import metastore_jars
from airflow_hive_federation.embedded.jvm import java_command
from airflow_hive_federation.runtime.java import find_java
from tests.support.line_servers import LineServer, line_server
from tests.support.plain_metastore import fetched

SCRIPT = Path(__file__).with_name("java_stub.groovy")
JARS = """
test com.google.api.grpc:proto-google-common-protos:2.51.0@jar \
0b27938f3d28ccd6884945d7e4f75f4e26a677bbf3cd39bbcb694f130f782aa9 2699499
test com.google.code.gson:gson:2.11.0@jar \
57928d6e5a6edeb2abd3770a8f95ba44dce45f3b23b7a9dc2b309c581552a78b 298435
test com.google.guava:failureaccess:1.0.2@jar \
8a8f81cf9b359e3f6dfa691a1e776985c061ef2f223c9b2c80753e1b458e8064 4740
test com.google.guava:guava:33.3.1-android@jar \
2c3e41d1b380f2044d257947a3aa82dabf3ae4b978622745254aa18b6cf89ab0 2918070
test com.google.protobuf:protobuf-java:3.25.5@jar \
8540247fad9e06baefa8fb45eb313802d019f485f14300e0f9d6b556ed88e753 1875414
test io.grpc:grpc-api:1.72.0@jar \
f7ca643e2a8cab338b3c3c37305da4084d81d75b66a2016018c1c0ab97b655d4 323183
test io.grpc:grpc-context:1.72.0@jar \
43b58ec3cd95c16627f5846d1b934564b22a2715885d0ebcdbb071212213db22 293
test io.grpc:grpc-core:1.72.0@jar \
da3cc600520ce757cd4d08e502348e65e0815574fbcdafa4ee1f7d3dd10e77c3 658880
test io.grpc:grpc-netty-shaded:1.72.0@jar \
701b372d92f8173899ae649674046346bdb24c721b10b603342cbe483cc948d6 10099683
test io.grpc:grpc-protobuf-lite:1.72.0@jar \
7d942e864624783f27b8110d66e6812a9d43e65c63234de6edf937e959f243f8 7815
test io.grpc:grpc-protobuf:1.72.0@jar \
2c65feaebb9d74281ec78dcaa30ff222aff71fe2a27514426f078e10bb20bb14 5204
test io.grpc:grpc-stub:1.72.0@jar \
851c7d3e6a42d0a662e78aecda4318fc347e12b1e85f67e78598c46c9bcb3dc8 61031
test io.grpc:grpc-util:1.72.0@jar \
68a2f8162a3ff7e1235989e950d23bebbafba1cbd5771216992d6496f01fdcd5 98975
test io.perfmark:perfmark-api:0.27.0@jar \
c7b478503ec524e55df19b424d46d27c8a68aeb801664fadd4f069b71f52d0f6 6954
test org.apache.hive:hive-standalone-metastore-common:4.2.0@jar \
af7e253cc8de1f05b78c33dbd38bf1d25e16bc953fc78f35d6d1c03a0ce38dc9 18981086
"""


@dataclass(frozen=True)
class Answer:
    """The outcome of a call of the stub.

    :param code: gRPC's name of the status.
    :param text: its description.
    :param exception: the Hive exception that a trailer names.
    :param data: the response's bytes, as Java writes them anew.
    """

    code: str
    text: str
    exception: str
    data: bytes


class JavaStub:
    """Calls rpcs, one after the other; those that have begun run beside the others."""

    def __init__(self, server: LineServer) -> None:
        self._server = server

    def begin(self, rpc: str, request: bytes) -> None:
        """Begin an rpc; :meth:`call` waits for its end."""
        encoded = base64.b64encode(request).decode()
        self._server.ask({"rpc": rpc, "request": encoded, "begin": True})

    def call(self, rpc: str, request: bytes) -> Answer:
        """Call an rpc with the bytes of its request."""
        fields = self._server.ask({"rpc": rpc, "request": base64.b64encode(request).decode()})
        return Answer(
            fields["code"],
            fields.get("text", ""),
            fields.get("exception", ""),
            base64.b64decode(fields.get("data", "")),
        )


@contextmanager
def java_stub(port: int, home: Path) -> Iterator[JavaStub]:
    """Start one that calls a port of this machine, and end it with the block."""
    java = find_java()
    groovy = [jar for jar in metastore_jars(java) if jar.name.startswith("groovy-all-")]
    command = java_command(
        java,
        "groovy.ui.GroovyMain",
        [str(SCRIPT), str(port)],
        class_path=[*fetched(JARS), *groovy],
        argument_file=home / "stub.args",
    )
    with line_server(command, home) as server:
        yield JavaStub(server)
