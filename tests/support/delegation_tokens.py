"""Delegation tokens in Hadoop's form, and the server's side of DIGEST-MD5 that knows one."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

OWNER = b"alice@HIVE.TEST"
#: Version, owner, renewer and real user, and the numbers of a token's identifier.
IDENTIFIER = b"\0" + bytes([len(OWNER)]) + OWNER + b"\0\0" + b"\x8a\x01\x8c" * 2 + b"\x01\x02"
PASSWORD = bytes(range(20))


def encoded(*fields: bytes) -> bytes:
    """The text of a token with these fields, each shorter than 113 bytes."""
    data = b"".join(bytes([len(value)]) + value for value in fields)
    return base64.urlsafe_b64encode(data).rstrip(b"=")


TOKEN = encoded(IDENTIFIER, PASSWORD, b"HIVE_DELEGATION_TOKEN", b"")


class DigestServer:
    """The server's side, written from RFC 2831 with the arithmetic of one session."""

    NONCE = "server+nonce/="

    def __init__(self, qop: str) -> None:
        self.qop = qop

    def challenge(self) -> bytes:
        return (
            f'realm="default",nonce="{self.NONCE}",qop="{self.qop}",charset=utf-8,'
            'cipher="3des,rc4",algorithm=md5-sess,maxbuf=65536'
        ).encode()

    def accept(self, response: bytes) -> bytes:
        """Check the client's proof, and return the server's."""
        fields = dict(re.findall(r'([\w-]+)="?([^",]*)"?', response.decode()))
        self.fields = fields
        secret = base64.b64encode(PASSWORD).decode()
        assert fields["username"] == base64.b64encode(IDENTIFIER).decode()
        inner = _md5(f"{fields['username']}:default:{secret}".encode()).digest()
        self.key = _md5(inner + f":{self.NONCE}:{fields['cnonce']}".encode()).digest()
        assert fields["response"] == self._proof("AUTHENTICATE")
        return f"rspauth={self._proof('')}".encode()

    def _proof(self, method: str) -> str:
        suffix = "" if self.qop == "auth" else ":" + "0" * 32
        second = _md5(f"{method}:{self.fields['digest-uri']}{suffix}".encode()).hexdigest()
        parts = (self.key.hex(), self.NONCE, "00000001", self.fields["cnonce"], self.qop, second)
        return _md5(":".join(parts).encode()).hexdigest()

    def signed(self, data: bytes, number: int) -> bytes:
        """A signed message to the client (``auth-int``)."""
        name = b"Digest session key to server-to-client signing key magic constant"
        key = _md5(self.key + name).digest()
        order = number.to_bytes(4, "big")
        return data + hmac.new(key, order + data, _md5).digest()[:10] + b"\0\1" + order


def _md5(data: bytes = b"") -> hashlib._Hash:
    return hashlib.md5(data, usedforsecurity=False)
