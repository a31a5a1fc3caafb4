"""Provides a client's bearer tokens: from the settings, from a file, or signed by a service account's key."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.metastore.grpc_settings import GrpcSettings

#: Seconds that a token of a client is valid, and seconds before its end at which the client replaces it.
LIFETIME_S = 3600
EARLY_S = 300
_REMEDY = "Give the JSON key file of a service account, as Google's console makes it."


class Tokens(Protocol):
    """A source of bearer tokens."""

    def token(self, *, renew: bool = False) -> str:
        """Return the token for the next call.

        :param renew: make a newer token, because the gateway refused the last one.
        :raises ConfigurationError: if the source has no token.
        """


def tokens_of(settings: GrpcSettings) -> Tokens | None:
    """Return the source of tokens in the settings; ``None`` if they have none.

    :raises ConfigurationError: if the key file cannot be read, or is no key file of a service account.
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
    """A token file that another program replaces in time, Kubernetes' projected volumes for instance."""

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
        if not token or any(character.isspace() for character in token):
            raise ConfigurationError(
                f"The token file {self._path} holds no token.",
                remedy="It has to hold a token and nothing else.",
            )
        return token


class ServiceAccount:
    """Signs tokens (JWT) with the key of a service account: RS256, or ES256 with a key of P-256.

    The tokens have the form of Google's self-signed tokens: issuer and subject are the account's e-mail
    address.

    :param keyfile: JSON with ``client_email``, ``private_key`` and ``private_key_id``.
    :param audience: gateway that accepts the tokens.
    :param clock: returns the seconds since 1970.
    :raises ConfigurationError: if the file cannot be read, or is no key file of a service account.
    """

    def __init__(self, keyfile: Path, audience: str, *, clock: Callable[[], float] = time.time) -> None:
        self._audience = audience
        self._clock = clock
        self._lock = threading.Lock()
        self._account, self._key_id, self._key, self._algorithm = _read(keyfile)
        self._token, self._renew_at = "", 0.0

    def token(self, *, renew: bool = False) -> str:
        """Return the token for the next call; see :meth:`Tokens.token`."""
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
        fields = json.loads(keyfile.read_text(encoding="utf-8"))
        account, key_id, text = (
            fields["client_email"],
            fields.get("private_key_id", ""),
            fields["private_key"],
        )
        key = load_pem_private_key(text.encode(), password=None)
    except OSError as error:
        raise ConfigurationError(
            f"The service account's key file {keyfile} cannot be read: {error}", remedy=_REMEDY
        ) from error
    except (ValueError, TypeError, KeyError, AttributeError):
        # The message repeats neither the text nor the parser's error, which may hold the key.
        raise ConfigurationError(f"{keyfile} is no key file of a service account.", remedy=_REMEDY) from None
    if isinstance(key, RSAPrivateKey):
        return account, key_id, key, "RS256"
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return account, key_id, key, "ES256"
    raise ConfigurationError(f"{keyfile} holds no key of RSA or P-256.", remedy=_REMEDY)
