"""Certificates and settings of a metastore with TLS."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from airflow_hive_federation.embedded.metastore import EmbeddedMetastore
from airflow_hive_federation.metastore import MetastoreSettings, TlsSettings

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
