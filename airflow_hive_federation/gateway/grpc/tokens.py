"""Authenticates callers by bearer tokens (JWT) that an identity provider or a service account has signed."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jwt
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.gateway.grpc.authentication import (
    FRONT,
    Evidence,
    refuse_unknown,
    unauthenticated,
)
from airflow_hive_federation.gateway.handler import Caller
from airflow_hive_federation.metastore.grpc_settings import DEFAULT_AUDIENCE

log = logging.getLogger(__name__)

ACCOUNTS, JWKS, ISSUER = "service.accounts", "jwks", "issuer"
AUDIENCE, SKEW, CLAIM, STRIP = "audience", "clock.skew", "user.claim", "strip.domain"
_SKEW_S = 60
#: Number of tokens whose claims are kept; a token is verified again after it was dropped or the keys changed.
_TOKENS = 1024
_BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE"
Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class _Key:
    """A public key and its only algorithm, which the token cannot choose."""

    key_id: str
    algorithm: str
    key: Any


@dataclass(frozen=True, eq=False)
class _Keys:
    """The keys of one reading of the files, by issuer."""

    of_issuer: Mapping[str, tuple[_Key, ...]]


class BearerTokens:
    """Verifies JSON web tokens that are signed by RS256 or ES256.

    The settings have the prefix ``metastore.grpc.authentication.``; defaults are in parentheses:

    * ``service.accounts``: directory with one file of public keys per service account. The account names the
      file (``etl@project.iam.gserviceaccount.com.pem``; ``.pem`` or ``.json``). A key is valid only for
      tokens that name its account as issuer and subject.
    * ``jwks`` and ``issuer``: file of public keys (JWKS or PEM) of an identity provider, and the provider's
      name in the tokens' ``iss``. These keys are valid for every subject.
    * ``audience``: the gateway's name in the tokens' ``aud`` (``hive-metastore``); commas separate several
      names.
    * ``clock.skew``: seconds by which clocks may differ (60).
    * ``user.claim``: claim of an identity provider's tokens that holds the user's name (``sub``).
    * ``strip.domain``: ``true`` takes the part before ``@`` as the user's name. Accounts with the same name
      in different domains then become one user.

    The plug-in reads files again after they have changed. If one of them cannot be read then, the former keys
    stay in use, except those of accounts whose files were removed.

    :raises ConfigurationError: a setting is unknown or has an impossible value, or the keys cannot be read.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        refuse_unknown(properties, (ACCOUNTS, JWKS, ISSUER, AUDIENCE, SKEW, CLAIM, STRIP))
        self._accounts = Path(properties[ACCOUNTS]) if properties.get(ACCOUNTS) else None
        self._jwks = Path(properties[JWKS]) if properties.get(JWKS) else None
        self._issuer = properties.get(ISSUER, "")
        if (self._accounts is None and self._jwks is None) or bool(self._jwks) != bool(self._issuer):
            raise ConfigurationError(
                "The settings do not name the issuer whose tokens the gateway accepts.",
                remedy=f"Set {ACCOUNTS} to a directory of public keys, or {JWKS} and {ISSUER}.",
            )
        audiences = properties.get(AUDIENCE, DEFAULT_AUDIENCE).split(",")
        self._audiences = [audience.strip() for audience in audiences if audience.strip()]
        self._skew_s = _seconds(properties.get(SKEW, str(_SKEW_S)))
        self._claim = properties.get(CLAIM, "sub")
        self._strip = properties.get(STRIP, "").lower() == "true"
        self._lock = threading.Lock()
        self._stamp = self._stamped()
        self._keys = self._read()
        # A client sends the same token with each call, and a signature takes longer than the call.
        self._verified = lru_cache(maxsize=_TOKENS)(self._verify)

    def authenticate(self, evidence: Evidence) -> Caller:
        """See :meth:`.authentication.Authenticator.authenticate`."""
        token = evidence.bearer_token
        if token is None:
            raise unauthenticated("there is no bearer token")
        claims = self._verified(token, self._current())
        if int(claims["exp"]) <= time.time() - self._skew_s:
            raise unauthenticated("the token has expired")
        user = claims.get("sub" if self._is_account(claims) else self._claim)
        if not isinstance(user, str) or not user:
            raise unauthenticated("the token names no user")
        name = user.partition("@")[0] if self._strip else user
        return Caller(user=name, authentication="token", peer=evidence.peer, front=FRONT)

    def _verify(self, token: str, known: _Keys) -> dict[str, Any]:
        try:
            # Unverified values only select the keys; nothing else uses them before verification.
            issuer = jwt.decode(token, options={"verify_signature": False}).get("iss")
            key_id = jwt.get_unverified_header(token).get("kid")
        except (jwt.PyJWTError, ValueError):
            raise unauthenticated("the bearer token is no JSON web token") from None
        keys = known.of_issuer.get(issuer, ()) if isinstance(issuer, str) else ()
        fitting = [key for key in keys if not key.key_id or not key_id or key.key_id == key_id]
        for key in fitting:
            try:
                claims = self._decode(token, key, str(issuer))
            except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
                continue
            if self._is_account(claims) and claims.get("sub") != issuer:
                raise unauthenticated("the token of a service account is for another subject")
            return claims
        raise unauthenticated("the token is signed by none of the known keys of its issuer")

    def _decode(self, token: str, key: _Key, issuer: str) -> dict[str, Any]:
        try:
            return jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=self._audiences,
                issuer=issuer,
                leeway=self._skew_s,
                options={"require": ["exp", "aud", "iss"]},
            )
        except (jwt.InvalidSignatureError, jwt.InvalidAlgorithmError):
            raise
        except jwt.ExpiredSignatureError:
            raise unauthenticated("the token has expired") from None
        except jwt.InvalidAudienceError:
            raise unauthenticated("the token is meant for another audience") from None
        except jwt.PyJWTError as error:
            raise unauthenticated(f"the token is not valid ({type(error).__name__})") from None

    def _is_account(self, claims: Mapping[str, object]) -> bool:
        return claims.get("iss") != self._issuer or not self._issuer

    def _current(self) -> _Keys:
        with self._lock:
            if (stamp := self._stamped()) != self._stamp:
                self._stamp = stamp
                try:
                    self._keys = self._read()
                except ConfigurationError as error:
                    log.warning("changed keys are not used, and the former keys stay in use: %s", error)
                    self._keys = self._without_removed(self._keys)
            return self._keys

    def _without_removed(self, keys: _Keys) -> _Keys:
        """Return the keys without those of accounts whose files are gone, for they were revoked."""
        try:
            issuers = {issuer for issuer, _ in self._files()}
        except ConfigurationError:
            return keys
        return _Keys({issuer: known for issuer, known in keys.of_issuer.items() if issuer in issuers})

    def _files(self) -> list[tuple[str, Path]]:
        files: list[tuple[str, Path]] = []
        if self._accounts is not None:
            try:
                paths = sorted(self._accounts.iterdir())
            except OSError as error:
                raise ConfigurationError(
                    f"The directory {self._accounts} of public keys cannot be read: {error}",
                    remedy=f"Correct {ACCOUNTS}.",
                ) from error
            files += [(path.stem, path) for path in paths if path.suffix in {".pem", ".json"}]
        if self._jwks is not None:
            files.append((self._issuer, self._jwks))
        return files

    def _stamped(self) -> Stamp:
        try:
            return tuple(
                (str(path), status.st_mtime_ns, status.st_size)
                for _, path in self._files()
                for status in [path.stat()]
            )
        except (OSError, ConfigurationError):
            return ()

    def _read(self) -> _Keys:
        keys: dict[str, tuple[_Key, ...]] = {}
        for issuer, path in self._files():
            if issuer == self._issuer and path != self._jwks:
                raise ConfigurationError(
                    f"{path} is named like the identity provider {issuer!r}.", remedy="Rename or remove it."
                )
            keys[issuer] = (*keys.get(issuer, ()), *_read_keys(path))
        if not keys:
            raise ConfigurationError(
                f"There are no public keys in {self._accounts}.",
                remedy="Add <account>.pem or <account>.json.",
            )
        return _Keys(keys)


def _read_keys(path: Path) -> tuple[_Key, ...]:
    remedy = "Give a JWKS, or PEM files of public keys or certificates."
    try:
        data = path.read_bytes()
        keys = _of_jwks(data) if data.lstrip().startswith(b"{") else (_of_pem(data),)
    except OSError as error:
        raise ConfigurationError(f"The keys {path} cannot be read: {error}", remedy=remedy) from error
    except (ValueError, TypeError, KeyError, jwt.PyJWTError) as error:
        raise ConfigurationError(f"{path} holds no public keys: {error}", remedy=remedy) from error
    if not keys:
        raise ConfigurationError(f"{path} holds no key of RSA or P-256.", remedy=remedy)
    return keys


def _of_jwks(data: bytes) -> tuple[_Key, ...]:
    keys = []
    for entry in json.loads(data)["keys"]:
        if entry.get("kty") == "RSA" or (entry.get("kty") == "EC" and entry.get("crv") == "P-256"):
            keys.append(_key(jwt.PyJWK(entry).key, str(entry.get("kid", ""))))
    return tuple(keys)


def _of_pem(data: bytes) -> _Key:
    if _BEGIN_CERTIFICATE in data:
        return _key(x509.load_pem_x509_certificate(data).public_key(), "")
    return _key(load_pem_public_key(data), "")


def _key(key: object, key_id: str) -> _Key:
    if isinstance(key, RSAPublicKey):
        return _Key(key_id, "RS256", key)
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return _Key(key_id, "ES256", key)
    raise ValueError(f"{type(key).__name__} is no public key of RSA or P-256")


def _seconds(text: str) -> int:
    if not text.isdecimal():
        raise ConfigurationError(f"{SKEW} is {text!r}, which is no number of seconds.", remedy="Correct it.")
    return int(text)
