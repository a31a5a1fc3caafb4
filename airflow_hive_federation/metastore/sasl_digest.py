"""Proves the client's identity by a delegation token: the SASL mechanism DIGEST-MD5 (RFC 2831).

User and password are identifier and password of the token in Base64, the digest's URI is ``null/default``
(``HadoopThriftAuthBridge.Client``).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import importlib
import re
import secrets
from collections.abc import Callable
from typing import cast

from airflow_hive_federation.errors import ConfigurationError, MetastoreAuthenticationError
from airflow_hive_federation.metastore.channel import Deadline, ForeignProtocol
from airflow_hive_federation.metastore.settings import DelegationTokenSettings, Endpoint

_URI = "null/default"
_COUNT = "00000001"
_QOPS = ("auth-conf", "auth-int", "auth")
_DIRECTIVE = re.compile(r'\s*([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))\s*(?:,|$)')
#: Bytes of a challenge (RFC 2831, 2.1.1). The time that the expression above takes grows faster than them.
_CHALLENGE_BOUND = 2048
#: Length of a message that either side accepts, unless it names another one.
_DEFAULT_BUFFER = 65536
_LONGEST_BUFFER = 0xFFFFFF
#: Bytes that protection adds to a message: HMAC, type and number.
_HMAC_BYTES = 10
_TAIL = 6
_TYPE = b"\0\1"
_NO_BODY = ":" + "0" * 32


class Digest:
    """The client's side of DIGEST-MD5, with the strongest protection that the server offers."""

    name = "DIGEST-MD5"
    complete = False

    def __init__(self, settings: DelegationTokenSettings, endpoint: Endpoint) -> None:
        token = settings.read()
        self._user = base64.b64encode(token.identifier).decode()
        self._password = base64.b64encode(token.password).decode()
        self._token = settings.token
        self._endpoint = endpoint
        self._begun = False
        self._expected = b""
        self._qop = "auth"
        self._piece = _DEFAULT_BUFFER
        self._sealed: _Sealed | None = None

    def step(self, challenge: bytes, deadline: Deadline) -> bytes:  # noqa: ARG002 - no third party is needed
        """See :meth:`.sasl.Mechanism.step`."""
        if not self._begun:
            # The server speaks first.
            self._begun = True
            return b""
        asked = _directives(challenge)
        offered = [qop.strip() for qop in asked.get("qop", "auth").split(",")]
        qops = [qop for qop in _QOPS if _can(qop, offered, asked)]
        longest = asked.get("maxbuf", str(_DEFAULT_BUFFER))
        if "nonce" not in asked or not qops or not longest.isdecimal():
            raise ForeignProtocol("its challenge is not of DIGEST-MD5, or offers no protection that is known")
        self._qop = qops[0]
        realm, nonce, client_nonce = asked.get("realm", ""), asked["nonce"], secrets.token_hex(16)
        key = _md5(
            _md5(f"{self._user}:{realm}:{self._password}".encode()) + f":{nonce}:{client_nonce}".encode()
        )

        def proof(method: str) -> str:
            body = "" if self._qop == "auth" else _NO_BODY
            tail = _md5(f"{method}:{_URI}{body}".encode()).hex()
            text = f"{key.hex()}:{nonce}:{_COUNT}:{client_nonce}:{self._qop}:{tail}"
            return _md5(text.encode()).hex()

        self._expected = f"rspauth={proof('')}".encode()
        if self._qop != "auth":
            self._sealed = _Sealed(key, encrypts=self._qop == "auth-conf")
            self._piece = max(1, min(int(longest), _LONGEST_BUFFER) - _HMAC_BYTES - _TAIL)
        self.complete = True
        answer = {
            "charset": "utf-8",
            "username": f'"{self._user}"',
            "realm": f'"{realm}"',
            "nonce": f'"{nonce}"',
            "nc": _COUNT,
            "cnonce": f'"{client_nonce}"',
            "digest-uri": f'"{_URI}"',
            "maxbuf": str(_LONGEST_BUFFER),
            "response": proof("AUTHENTICATE"),
            "qop": self._qop,
            **({"cipher": '"rc4"'} if self._qop == "auth-conf" else {}),
        }
        return ",".join(f"{name}={value}" for name, value in answer.items()).encode()

    def finish(self, payload: bytes) -> None:
        """See :meth:`.sasl.Mechanism.finish`."""
        if not hmac.compare_digest(payload, self._expected):
            raise MetastoreAuthenticationError(
                f"{self._endpoint} does not know the delegation token's secret: it is another server.",
                remedy="Check the URI, and that the token is of this metastore.",
                uri=str(self._endpoint),
            )

    def shown(self, text: str) -> str:
        """See :meth:`.sasl.Mechanism.shown`."""
        for secret in (self._password, self._token):
            text = text.replace(secret, "***")
        return text

    def wrap(self, data: bytes) -> list[bytes]:
        """See :meth:`.sasl.Mechanism.wrap`."""
        if self._sealed is None:
            return [data]
        pieces = [data[first : first + self._piece] for first in range(0, len(data), self._piece)]
        return [self._sealed.seal(piece) for piece in pieces]

    def unwrap(self, frame: bytes) -> bytes:
        """See :meth:`.sasl.Mechanism.unwrap`."""
        return frame if self._sealed is None else self._sealed.open(frame)


class _Sealed:
    """Signs the messages of a session, and encrypts them by RC4.

    :param key: the session's key (``H(A1)``).
    """

    def __init__(self, key: bytes, *, encrypts: bool) -> None:
        def derived(direction: str, use: str) -> bytes:
            prefix = "Digest session key to" if use == "signing" else "Digest H(A1) to"
            return _md5(key + f"{prefix} {direction} {use} key magic constant".encode())

        to_server, to_client = "client-to-server", "server-to-client"
        self._signing, self._checking = derived(to_server, "signing"), derived(to_client, "signing")
        self._sent = self._received = 0
        self._encrypt: Callable[[bytes], bytes] = _same
        self._decrypt: Callable[[bytes], bytes] = _same
        if encrypts:
            self._encrypt = _rc4(derived(to_server, "sealing"))
            self._decrypt = _rc4(derived(to_client, "sealing"))

    def seal(self, data: bytes) -> bytes:
        number = self._sent.to_bytes(4, "big")
        self._sent += 1
        return self._encrypt(data + _signature(self._signing, number, data)) + _TYPE + number

    def open(self, frame: bytes) -> bytes:
        """Return a message.

        :raises ValueError: if it was changed, repeated or left out on its way.
        """
        number = self._received.to_bytes(4, "big")
        self._received += 1
        body = self._decrypt(frame[:-_TAIL])
        data, signature = body[:-_HMAC_BYTES], body[-_HMAC_BYTES:]
        right = hmac.compare_digest(signature, _signature(self._checking, number, data))
        if not right or frame[-_TAIL:] != _TYPE + number:
            raise ValueError("a message was changed on its way from the server")
        return data


def _can(qop: str, offered: list[str], asked: dict[str, str]) -> bool:
    ciphers = [cipher.strip() for cipher in asked.get("cipher", "").split(",")]
    return qop in offered and (qop != "auth-conf" or "rc4" in ciphers)


def _directives(challenge: bytes) -> dict[str, str]:
    if len(challenge) >= _CHALLENGE_BOUND:
        raise ForeignProtocol(f"its challenge has {len(challenge)} bytes, which DIGEST-MD5 does not allow")
    text = challenge.decode("utf-8", "replace")
    return {match[1].lower(): match[2] or match[3] or "" for match in _DIRECTIVE.finditer(text)}


def _signature(key: bytes, number: bytes, data: bytes) -> bytes:
    # By the name "md5", a Python in FIPS mode would refuse the signature, as it refuses an unmarked hash.
    return hmac.new(key, number + data, _md5_hash).digest()[:_HMAC_BYTES]


def _rc4(key: bytes) -> Callable[[bytes], bytes]:
    # RFC 2831 leaves no better cipher; against other parties on the network, use TLS.
    ciphers = importlib.import_module("cryptography.hazmat.primitives.ciphers")
    try:
        algorithms = importlib.import_module("cryptography.hazmat.decrepit.ciphers.algorithms")
    except ImportError:
        algorithms = importlib.import_module("cryptography.hazmat.primitives.ciphers.algorithms")
    cipher = ciphers.Cipher(algorithms.ARC4(key), mode=None)
    try:
        return cast("Callable[[bytes], bytes]", cipher.encryptor().update)
    except importlib.import_module("cryptography.exceptions").UnsupportedAlgorithm as error:
        raise ConfigurationError(
            "The metastore offers to encrypt messages, and this machine's OpenSSL lacks RC4, by which "
            "DIGEST-MD5 (delegation tokens) does so.",
            remedy="Unset CRYPTOGRAPHY_OPENSSL_NO_LEGACY, or let the metastore offer no privacy "
            "(hadoop.rpc.protection) and use TLS.",
        ) from error


def _same(data: bytes) -> bytes:
    return data


def _md5(data: bytes) -> bytes:
    return _md5_hash(data).digest()


def _md5_hash(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
