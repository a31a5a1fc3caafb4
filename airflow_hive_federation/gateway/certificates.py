"""Loads certificates of the gateway's fronts, reloads changed files, and refuses plain text off loopback."""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass, field
from pathlib import Path

from airflow_hive_federation.errors import ConfigurationError

log = logging.getLogger(__name__)

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
Stamp = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True, kw_only=True)
class ServerTls:
    """The files of a front's certificate, and of the authorities that its clients' certificates need.

    :param cert_file: PEM file of the certificate and its intermediate certificates.
    :param key_file: PEM file of the certificate's key; ``None`` if ``cert_file`` holds the key.
    :param key_password: password of the key.
    :param client_ca_file: PEM file of the authorities whose clients the front accepts (mutual TLS); ``None``
        requires no certificate of clients.
    """

    cert_file: str
    key_file: str | None = None
    key_password: str | None = field(default=None, repr=False)
    client_ca_file: str | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """Paths of all configured files."""
        return tuple(path for path in (self.cert_file, self.key_file, self.client_ca_file) if path)

    def context(self) -> ssl.SSLContext:
        """Build the TLS context of a server.

        :raises ConfigurationError: a file is missing, or holds no certificate or key.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.load_cert_chain(self.cert_file, self.key_file, lambda: self.key_password or "")
            if self.client_ca_file is not None:
                context.load_verify_locations(cafile=self.client_ca_file)
                context.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:  # ssl.SSLError is an OSError
            raise ConfigurationError(
                f"TLS files {', '.join(self.files)} cannot be used: {error}.",
                remedy="Give readable PEM files; the key must belong to the certificate.",
            ) from error
        return context

    def contents(self) -> tuple[bytes, bytes, bytes | None]:
        """Return certificate chain, key and client authorities as PEM, for servers that take no files.

        :raises ConfigurationError: a file cannot be read.
        """
        try:
            chain = Path(self.cert_file).read_bytes()
            key = Path(self.key_file).read_bytes() if self.key_file else chain
            clients = Path(self.client_ca_file).read_bytes() if self.client_ca_file else None
        except OSError as error:
            raise ConfigurationError(
                f"TLS files {', '.join(self.files)} cannot be read: {error}",
                remedy="Give readable PEM files.",
            ) from error
        return chain, key, clients


class Certificates:
    """The certificates of a front, read again when their files have changed.

    If changed files cannot be used, perhaps because they are half written, the front goes on with the former
    certificates and logs a warning.

    :raises ConfigurationError: the files cannot be used at the start.
    """

    def __init__(self, tls: ServerTls) -> None:
        self.tls = tls
        self._lock = threading.Lock()
        self._stamp = _stamp(tls.files)
        self._context = tls.context()

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection."""
        self.changed()
        return self._context

    def changed(self) -> bool:
        """Read the files again if they have changed; return whether new certificates are in use."""
        with self._lock:
            stamp = _stamp(self.tls.files)
            if stamp == self._stamp or not stamp:
                return False
            self._stamp = stamp
            try:
                self._context = self.tls.context()
            except ConfigurationError as error:
                log.warning("changed certificates are not used, and the former ones stay in use: %s", error)
                return False
        log.info("certificates were read again: %s", ", ".join(self.tls.files))
        return True


def check_exposure(host: str, tls: ServerTls | None, *, allow_plain: bool) -> None:
    """Refuse to serve in plain text at an address that other machines reach.

    :param host: address to listen at.
    :param allow_plain: the operator accepts plain text.
    :raises ConfigurationError: the address is not loopback, the front has no certificate, and ``allow_plain``
        is false.
    """
    if tls is None and not allow_plain and not is_loopback(host):
        raise ConfigurationError(
            f"The gateway would serve {host or 'all addresses'} in plain text.",
            remedy="Give a certificate (cert_file and key_file, or --cert-file and --key-file), listen at "
            "127.0.0.1, or set allow_plain (--allow-plain) where the network is trusted.",
        )


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    return host in _LOOPBACK or host.startswith("127.")


def subject_of(certificate: object) -> str:
    """Return the common name of a client's certificate in the form of :meth:`ssl.SSLSocket.getpeercert`."""
    if not isinstance(certificate, dict):
        return ""
    return next(
        (value for group in certificate.get("subject", ()) for key, value in group if key == "commonName"), ""
    )


def _stamp(files: tuple[str, ...]) -> Stamp:
    try:
        return tuple(
            (path, status.st_mtime_ns, status.st_size, status.st_ino)
            for path in files
            for status in [Path(path).stat()]
        )
    except OSError:
        # A file may be missing between its removal and renaming: the former certificates stay in use.
        return ()
