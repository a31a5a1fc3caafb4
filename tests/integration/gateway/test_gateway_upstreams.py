"""A gateway before a metastore behind SSH, and before another gateway by gRPC.

Its upstreams by TLS, by HTTPS with a token and by Kerberos are in the files of those metastores.
"""

from __future__ import annotations

from pathlib import Path

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from tests.support.gateway_front import gateway, work_through
from tests.support.sshd import start_sshd


def test_through_ssh(source: EmbeddedMetastore, tmp_path: Path) -> None:
    server = start_sshd(tmp_path / "ssh")
    try:
        upstream = {
            "uris": [source.uri],
            "ssh_route": f"{server.hop.user}@127.0.0.1:{server.port}",
            "ssh_private_keys": [str(server.key)],
            "ssh_known_hosts": [str(server.known_hosts)],
        }
        work_through(upstream, "gateway_ssh")
    finally:
        server.stop()


def test_through_a_gateway_of_grpc(source: EmbeddedMetastore) -> None:
    with gateway({"upstream": {"uris": [source.uri]}, "grpc": {"port": 0}}) as far:
        uri = next(front.uri for front in far.fronts if front.uri.startswith("grpc"))
        work_through({"uris": [uri]}, "gateway_grpc")
