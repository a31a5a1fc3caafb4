"""Certificates of the tests: an authority, and what it signs."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

_NOW = dt.datetime.now(dt.UTC)

_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass
class Authority:
    """Signs certificates; its own is in ``ca_file``.

    They have the extensions of RFC 5280 that Python demands since 3.13.
    """

    directory: Path
    common_name: str = "authority"
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.name = _name(self.common_name)
        made = self._builder(self.name, self.key, ca=True).sign(self.key, hashes.SHA256())
        self.ca_file = str(self.directory / f"{self.common_name}.pem")
        Path(self.ca_file).write_bytes(made.public_bytes(Encoding.PEM))

    def sign(
        self, name: str, *hosts: str, password: str | None = None, file: str | None = None
    ) -> tuple[str, str]:
        """Make a certificate and its key; return their files."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = []
        for host in hosts:
            try:
                names.append(x509.IPAddress(ipaddress.ip_address(host)))
            except ValueError:
                names.append(x509.DNSName(host))
        builder = self._builder(_name(name), key, ca=False)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        stem = self.directory / (file or name)
        encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        key_file, cert_file = stem.with_suffix(".key"), stem.with_suffix(".pem")
        key_file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption))
        certificate = builder.sign(self.key, hashes.SHA256())
        cert_file.write_bytes(certificate.public_bytes(Encoding.PEM))
        return str(cert_file), str(key_file)

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, ca: bool
    ) -> x509.CertificateBuilder:
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_NOW - dt.timedelta(hours=1))
            .not_valid_after(_NOW + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False
            )
        )
        return builder.add_extension(_SIGNS, critical=True) if ca else builder


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
