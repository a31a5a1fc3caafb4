"""A real Hive metastore that speaks TLS, and several of them behind one list of URIs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.errors import MetastoreError, MetastoreUnreachableError, RemoteError
from airflow_hive_federation.metastore import MetastoreClient, MetastoreSettings, TlsSettings
from airflow_hive_federation.remotes.session import Remotes
from tests.integration.gateway_front import work_through

PASSWORD = "only-for-this-test"


@dataclass(frozen=True)
class Identity:
    """A certificate for 127.0.0.1, as Java and as Python want it."""

    keystore: Path
    certificate: Path
    key_file: Path


def make_identity(directory: Path) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "metastore")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    directory.mkdir(parents=True, exist_ok=True)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    made = Identity(
        keystore=directory / "keystore.p12",
        certificate=directory / "certificate.pem",
        key_file=directory / "key.pem",
    )
    made.key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    made.keystore.write_bytes(
        pkcs12.serialize_key_and_certificates(b"metastore", key, certificate, None, encryption)
    )
    made.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return made


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return make_identity(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(
    identity: Identity, hive_metastore_factory: Callable[..., EmbeddedMetastore]
) -> EmbeddedMetastore:
    return hive_metastore_factory("secured", settings=secured_settings(identity))


def secured_settings(identity: Identity) -> dict[str, str]:
    return {
        "metastore.use.SSL": "true",
        "metastore.keystore.path": str(identity.keystore),
        "metastore.keystore.password": PASSWORD,
        "metastore.keystore.type": "PKCS12",
    }


def settings_for(metastore: EmbeddedMetastore, ca_file: Path | None) -> MetastoreSettings:
    uri = metastore.uri.replace("thrift://", "thrift+tls://")
    tls = TlsSettings(ca_file=str(ca_file) if ca_file else None)
    return MetastoreSettings(uris=(uri,), tls=tls, connect_timeout_s=10)


def test_a_trusted_certificate_is_enough(secured: EmbeddedMetastore, identity: Identity) -> None:
    with MetastoreClient(settings_for(secured, identity.certificate)) as client:
        assert client.list_databases() == ["default"]


def test_a_remote_behind_tls(
    secured: EmbeddedMetastore, source: EmbeddedMetastore, identity: Identity, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement = f"""CREATE REMOTE DATABASE behind_tls CONNECTED TO default
        VIA 'thrift' 'hive.metastore.uris' = '{secured.uri}' 'hive.metastore.use.SSL' = 'true'"""
    local = MetastoreSettings(uris=(source.uri,))
    with Remotes(local) as remotes, pytest.raises(RemoteError, match=r"Remote behind_tls.*certificate"):
        remotes.run(statement)
    # By the system's authorities, of which it now is one.
    monkeypatch.setenv("SSL_CERT_FILE", str(identity.certificate))
    with Remotes(local) as remotes:
        remotes.run(f"{statement}; REFRESH REMOTE DATABASE behind_tls; DROP REMOTE DATABASE behind_tls")


def test_a_gateway_before_it(secured: EmbeddedMetastore, identity: Identity) -> None:
    """An engine that knows plain Thrift only gets to it."""
    uri = secured.uri.replace("thrift://", "thrift+tls://")
    work_through({"uris": [uri], "ca_file": str(identity.certificate)}, "gateway_tls")


def test_an_unknown_certificate_is_refused(secured: EmbeddedMetastore, tmp_path: Path) -> None:
    other = make_identity(tmp_path)
    for ca_file in (None, other.certificate):
        with (
            MetastoreClient(settings_for(secured, ca_file)) as client,
            pytest.raises(MetastoreError, match="certificate"),
        ):
            client.list_databases()


def test_no_tls_to_a_server_that_wants_it_is_a_typed_error(secured: EmbeddedMetastore) -> None:
    settings = MetastoreSettings(uris=(secured.uri,), connect_timeout_s=3, call_timeout_s=5)
    with MetastoreClient(settings) as client, pytest.raises(MetastoreError):
        client.list_databases()


def test_a_dead_uri_is_passed_over_and_a_dead_list_names_all(source: EmbeddedMetastore) -> None:
    dead = ("thrift://127.0.0.1:1", "thrift://127.0.0.1:2")
    for _ in range(5):  # the order is random
        with MetastoreClient(MetastoreSettings(uris=(*dead, source.uri))) as client:
            assert "default" in client.list_databases()
    with (
        MetastoreClient(MetastoreSettings(uris=dead)) as client,
        pytest.raises(
            MetastoreUnreachableError,
            match=r"(?s)127\.0\.0\.1:1.*127\.0\.0\.1:2|127\.0\.0\.1:2.*127\.0\.0\.1:1",
        ),
    ):
        client.list_databases()
