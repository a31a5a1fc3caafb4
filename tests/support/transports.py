"""One metastore client over every transport: to a real metastore each time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.gateway.certificates import ServerTls
from airflow_hive_federation.gateway.dispatch import Gateway, Metastore
from airflow_hive_federation.gateway.grpc.server import GrpcFront
from airflow_hive_federation.gateway.grpc.settings import GrpcFrontSettings
from airflow_hive_federation.gateway.upstream import Upstream
from airflow_hive_federation.metastore import MetastoreSettings, TlsSettings
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings
from airflow_hive_federation.tunnel.route import TunnelSettings
from airflow_hive_federation.tunnel.tunnel import Tunnel
from tests.support.authorities import Authority
from tests.support.sshd import start_sshd

ACCOUNT = "tester"


@contextmanager
def grpc_gateway(uri: str, front: GrpcFrontSettings | None = None) -> Iterator[GrpcFront]:
    """A gateway with a gRPC front before a metastore."""
    with ExitStack() as stack:
        # Believed, as metastores without Kerberos believe everybody.
        upstream = Upstream("main", MetastoreSettings(uris=(uri,)), impersonate=True)
        target = Metastore(upstream)
        stack.callback(target.close)
        made = GrpcFront(Gateway(target), front or GrpcFrontSettings(port=0)).start()
        stack.callback(made.stop, 0)
        yield made


@contextmanager
def through_ssh(directory: Path, uri: str) -> Iterator[MetastoreSettings]:
    """Settings that reach a server of this machine through SSH."""
    server = start_sshd(directory)
    try:
        route = TunnelSettings(hops=(server.hop,), known_hosts=(str(server.known_hosts),), timeout_s=20.0)
        with Tunnel(route) as tunnel:
            yield MetastoreSettings(uris=(uri,), user=ACCOUNT, dialer=tunnel)
    finally:
        server.stop()


@contextmanager
def over(
    transport: str,
    metastore: EmbeddedMetastore,
    directory: Path,
    *,
    over_http: Callable[[], AbstractContextManager[str]],
) -> Iterator[MetastoreSettings]:
    """Settings of a client that uses a transport.

    :param over_http: starts a metastore that speaks HTTP, and gives its URI.
    """
    with ExitStack() as stack:
        if transport == "tcp":
            yield MetastoreSettings(uris=(metastore.uri,), user=ACCOUNT)
        elif transport == "http":
            yield MetastoreSettings(uris=(stack.enter_context(over_http()),), user=ACCOUNT)
        elif transport == "ssh":
            yield stack.enter_context(through_ssh(directory / "ssh", metastore.uri))
        elif transport == "grpc_ssh":
            front = stack.enter_context(grpc_gateway(metastore.uri))
            uri = f"grpc://127.0.0.1:{front.port}"
            yield stack.enter_context(through_ssh(directory / "grpc-ssh", uri))
        else:
            assert transport == "grpc_tls_token"
            yield stack.enter_context(tls_and_token(metastore.uri, directory / "tokens"))


@contextmanager
def tls_and_token(uri: str, directory: Path) -> Iterator[MetastoreSettings]:
    """Settings for a gateway with TLS that wants a token of a service account."""
    authority = Authority(directory)
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (accounts := directory / "accounts").mkdir()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (accounts / f"{ACCOUNT}.pem").write_bytes(public)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    keyfile = directory / "key.json"
    keyfile.write_text(json.dumps({"client_email": ACCOUNT, "private_key": private}), encoding="utf-8")
    cert_file, key_file = authority.sign("gateway", "127.0.0.1")
    settings = GrpcFrontSettings(
        port=0,
        tls=ServerTls(cert_file=cert_file, key_file=key_file),
        authentication_class="airflow_hive_federation.gateway.grpc.tokens.BearerTokens",
        authentication={"service.accounts": str(accounts)},
    )
    with grpc_gateway(uri, settings) as front:
        yield MetastoreSettings(
            uris=(f"grpc://127.0.0.1:{front.port}",),
            tls=TlsSettings(ca_file=authority.ca_file),
            grpc=GrpcSettings(service_account_keyfile=str(keyfile)),
        )
