"""Makes Java trust the certificate authorities that the rest of the machine trusts.

A Java runtime has its own list of authorities. If a proxy signs with a company's authority, Python and curl
read its certificate from ``SSL_CERT_FILE`` or similar variables, but Java ignores them. So this module
converts the PEM bundle to a Java trust store.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import ssl
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.runtime.cache import cache_directory, short_digest, write_atomically

BUNDLE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PASSWORD = "changeit"  # noqa: S105  # Java's customary one: a trust store holds no secret
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


def trust_flags(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Return the JVM flags that make Java trust the machine's authorities, or none if Java needs no flags.

    :raises ConfigurationError: if the bundle of a variable cannot be read or holds no certificate.
    """
    if "javax.net.ssl.trustStore" in environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    bundle = _bundle(environ)
    if bundle is None:
        return []
    path = _store_for(bundle)
    return [
        f"-Djavax.net.ssl.trustStore={path}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def certificates(pem: bytes) -> Iterator[bytes]:
    """Yield the DER form of every certificate in a PEM bundle once."""
    seen: set[bytes] = set()
    for match in _CERTIFICATE.finditer(pem):
        der = base64.b64decode(match.group(1))
        if der not in seen:
            seen.add(der)
            yield der


def java_key_store(ders: list[bytes]) -> bytes:
    """Return a trust store in Java's JKS format.

    The format is that of ``sun.security.provider.JavaKeyStore``: a header, one trusted-certificate entry (tag
    2) per authority, and a SHA-1 over password, a fixed phrase and everything before it.
    """
    out = bytearray(struct.pack(">III", 0xFEEDFEED, 2, len(ders)))
    for number, der in enumerate(ders):
        out += struct.pack(">I", 2) + _utf(f"authority-{number}") + struct.pack(">q", 0)
        out += _utf("X.509") + struct.pack(">I", len(der)) + der
    digest = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + out, usedforsecurity=False)
    return bytes(out) + digest.digest()


def _bundle(environ: Mapping[str, str]) -> Path | None:
    for variable in BUNDLE_VARIABLES:
        if named := environ.get(variable):
            path = Path(named)
            if not path.is_file():
                raise ConfigurationError(
                    f"{variable} names {named}, which is not a readable file.",
                    remedy=f"Point {variable} at a PEM bundle of certificate authorities, or unset it.",
                )
            return path
    system = ssl.get_default_verify_paths().cafile
    return Path(system) if system else None


def _store_for(bundle: Path) -> Path:
    pem = bundle.read_bytes()
    path = cache_directory() / "trust" / f"{short_digest(pem)}.jks"
    if not path.is_file():
        ders = list(certificates(pem))
        if not ders:
            raise ConfigurationError(
                f"{bundle} holds no certificate.", remedy="Name a PEM bundle of certificate authorities."
            )
        write_atomically(path, java_key_store(ders))
    return path


def _utf(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
