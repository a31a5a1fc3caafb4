"""Bearer tokens of a client: as they are, from a file, or made with a service account's key."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings

#: A token that a client makes is good for so long, and is replaced so long before its end.
LIFETIME_S = 3600
EARLY_S = 300
_REMEDY = "Give the JSON key file of a service account, as Google's console makes it."


class Tokens(Protocol):
    """Where the token of the next call comes from."""

    def token(self, *, renew: bool = False) -> str:
        """Return a token.

        :param renew: the last one was refused: a newer one is wanted.
        :raises ConfigurationError: there is none.
        """


def tokens_of(settings: GrpcSettings) -> Tokens | None:
    """Return the source of tokens that settings name.

    :raises ConfigurationError: a file cannot be read, or is none of the kind.
    """
    if settings.token is not None:
        return _Given(settings.token)
    if settings.token_file is not None:
        return _OfFile(Path(settings.token_file))
    if settings.service_account_keyfile is not None:
        return ServiceAccount(Path(settings.service_account_keyfile), settings.audience)
    return None


class _Given:
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self, *, renew: bool = False) -> str:
        del renew
        return self._token


class _OfFile:
    """A file that something else, a projected volume of Kubernetes for instance, replaces in time."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def token(self, *, renew: bool = False) -> str:
        del renew
        try:
            token = self._path.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(
                f"The token file {self._path} cannot be read: {error}",
                remedy="Correct metastore.grpc.token.file.",
            ) from error
        if not token or any(one.isspace() for one in token):
            raise ConfigurationError(
                f"The token file {self._path} holds no token.",
                remedy="It has to hold a token and nothing else.",
            )
        return token


class ServiceAccount:
    """Makes tokens (JWT) that the key of a service account signs: RS256, or ES256 with a key of P-256.

    The form is that of Google's self-signed tokens: issuer and subject are the account's e-mail address.

    :param keyfile: JSON with ``client_email``, ``private_key`` and ``private_key_id``.
    :param audience: whom they are meant for.
    :param clock: seconds since 1970.
    :raises ConfigurationError: it cannot be read, or is none of the kind.
    """

    def __init__(self, keyfile: Path, audience: str, *, clock: Callable[[], float] = time.time) -> None:
        self._audience = audience
        self._clock = clock
        self._lock = threading.Lock()
        self._account, self._key_id, self._key, self._algorithm = _read(keyfile)
        self._token, self._renew_at = "", 0.0

    def token(self, *, renew: bool = False) -> str:
        """See :meth:`Tokens.token`."""
        with self._lock:
            if renew or self._clock() >= self._renew_at:
                self._token, self._renew_at = self._make(), self._clock() + LIFETIME_S - EARLY_S
            return self._token

    def _make(self) -> str:
        import jwt

        now = int(self._clock())
        claims = {
            "iss": self._account,
            "sub": self._account,
            "aud": self._audience,
            "iat": now,
            "exp": now + LIFETIME_S,
        }
        headers = {"kid": self._key_id} if self._key_id else None
        return jwt.encode(claims, self._key, algorithm=self._algorithm, headers=headers)


def _read(keyfile: Path) -> tuple[str, str, Any, str]:
    try:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError as error:
        raise ConfigurationError(
            f"Tokens cannot be made: {error}", remedy="Install airflow-hive-federation[grpc]."
        ) from error
    try:
        told = json.loads(keyfile.read_text(encoding="utf-8"))
        account, key_id, text = told["client_email"], told.get("private_key_id", ""), told["private_key"]
        key = load_pem_private_key(text.encode(), password=None)
    except OSError as error:
        raise ConfigurationError(
            f"The service account's key file {keyfile} cannot be read: {error}", remedy=_REMEDY
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError):
        # Neither the text nor the parser's error is repeated: it may hold the key.
        raise ConfigurationError(f"{keyfile} is no key file of a service account.", remedy=_REMEDY) from None
    if isinstance(key, RSAPrivateKey):
        return account, key_id, key, "RS256"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return account, key_id, key, "ES256"
    raise ConfigurationError(f"{keyfile} holds no key of RSA or P-256.", remedy=_REMEDY)
