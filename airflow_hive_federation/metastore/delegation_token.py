"""Reads Hadoop's delegation tokens, which stand for a Kerberos identity where no keytab and no ticket is.

A token's text is Base64 of Hadoop's ``Token`` as a ``Writable``: identifier, password, kind and service
(``Token.encodeToUrlString``). The metastore returns it from ``get_delegation_token``.
"""

from __future__ import annotations

import base64
import binascii
import io
from dataclasses import dataclass, field

from airflow_hive_federation.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True)
class DelegationToken:
    """A delegation token.

    :param identifier: bytes that name the owner and the token to the server; no secret by themselves.
    :param password: the secret that belongs to them.
    :param kind: kind of the token, such as ``HIVE_DELEGATION_TOKEN``.
    :param service: the service that the token is for; often empty.
    """

    identifier: bytes
    password: bytes = field(repr=False)
    kind: str
    service: str

    @property
    def owner(self) -> str | None:
        """Return the owner's principal; ``None`` if the identifier has another form.

        It is the first field after the version (``AbstractDelegationTokenIdentifier.write``).
        """
        stream = io.BytesIO(self.identifier)
        try:
            return _field(stream).decode() or None if stream.read(1) == b"\0" else None
        except ValueError:
            return None


def read_delegation_token(text: str) -> DelegationToken:
    """Read a token from its text.

    :raises ConfigurationError: if the text is no token; the error does not repeat it.
    """
    letters = text.strip()
    try:
        data = base64.b64decode(letters + "=" * (-len(letters) % 4), altchars=b"-_", validate=True)
        stream = io.BytesIO(data)
        identifier, password, kind, service = (_field(stream) for _ in range(4))
        if stream.read(1) or not identifier or not password:
            raise ValueError("not a token")
        return DelegationToken(
            identifier=identifier, password=password, kind=kind.decode(), service=service.decode()
        )
    except (ValueError, binascii.Error):
        # The text is a secret, and so may be the cause's message.
        raise ConfigurationError(
            "The delegation token is not in Hadoop's form.",
            remedy="Give the text that get_delegation_token returned, unchanged.",
        ) from None


def _field(stream: io.BytesIO) -> bytes:
    length = _number(stream)
    value = stream.read(max(0, length))
    if length < 0 or len(value) != length:
        raise ValueError("a field is cut off")
    return value


def _number(stream: io.BytesIO) -> int:
    """Read a number of variable length (``WritableUtils.readVLong``); negative ones do not occur here."""
    first = int.from_bytes(_exactly(stream, 1), "big", signed=True)
    if first >= -112:
        return first
    return int.from_bytes(_exactly(stream, -112 - first), "big") if first >= -120 else -1


def _exactly(stream: io.BytesIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise ValueError("a number is cut off")
    return data
