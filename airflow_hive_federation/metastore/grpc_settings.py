"""Defines the settings of a client that reaches its metastore through a gRPC gateway, without grpcio."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_hive_federation.errors import ConfigurationError

DEFAULT_GRPC_PORT = 9084
#: Audience of the tokens that clients make, unless the settings have another.
DEFAULT_AUDIENCE = "hive-metastore"
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})

#: Settings of the gRPC metastore's design in ``hive-site.xml``. Hive has the first since 4.2 (HIVE-12679).
CLIENT_CLASSES = ("metastore.client.impl", "metastore.custom.client.class")
KEYFILE = "metastore.grpc.service.account.keyfile"
AUDIENCE = "metastore.grpc.audience"
TOKEN_FILE = "metastore.grpc.token.file"  # noqa: S105 - the name of a setting
PLAINTEXT = "metastore.grpc.plaintext"
CLUSTER = "metastore.grpc.cluster"
_CLUSTER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, kw_only=True)
class GrpcSettings:
    """TLS, bearer tokens and the cluster for a gRPC gateway; at most one of the token's sources may be set.

    :param plaintext: use no TLS, even to other hosts than loopback; tokens then need an SSH route.
    :param token: bearer token.
    :param token_file: file with a bearer token, read for each call that needs a newer one.
    :param service_account_keyfile: JSON key file of a service account, in Google's form, whose key signs the
        tokens (``metastore.grpc.service.account.keyfile`` in the gRPC metastore's design).
    :param audience: gateway that accepts the tokens (their claim ``aud``).
    :param cluster: cluster whose locations the gateway shows; ``None`` for those of the primary clusters.
    """

    plaintext: bool = False
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    service_account_keyfile: str | None = None
    audience: str = DEFAULT_AUDIENCE
    cluster: str | None = None

    def __post_init__(self) -> None:
        given = [self.token, self.token_file, self.service_account_keyfile]
        if sum(source is not None for source in given) > 1:
            raise ConfigurationError(
                "There are several sources of tokens for gRPC.",
                remedy="Give a token, a file with a token, or a service account's key file.",
            )

        if self.cluster is not None and not _CLUSTER.fullmatch(self.cluster):
            raise ConfigurationError(
                f"{self.cluster!r} cannot be the name of a cluster.",
                remedy="Give a letter, then at most 63 letters, digits and _.",
            )

    @property
    def has_token(self) -> bool:
        """Return whether calls carry a bearer token."""
        return any((self.token, self.token_file, self.service_account_keyfile))


def grpc_properties(properties: Mapping[str, str]) -> dict[str, object]:
    """Translate the gRPC settings of a ``hive-site.xml`` to arguments of ``MetastoreSettings``.

    :raises ConfigurationError: if the two names of the client class have different values.
    """
    taken: dict[str, Any] = {}
    given: dict[str, Any] = {}
    classes = {properties[name].strip() for name in CLIENT_CLASSES if properties.get(name)}
    if len(classes) > 1:
        raise ConfigurationError(
            f"{' and '.join(CLIENT_CLASSES)} name different classes.", remedy="Keep one of them."
        )
    if classes:
        taken["client_class"] = classes.pop()
    for name, argument in (
        (KEYFILE, "service_account_keyfile"),
        (AUDIENCE, "audience"),
        (TOKEN_FILE, "token_file"),
        (CLUSTER, "cluster"),
    ):
        if properties.get(name):
            given[argument] = properties[name].strip()
    if properties.get(PLAINTEXT, "").strip().lower() == "true":
        given["plaintext"] = True
    if given:
        taken["grpc"] = GrpcSettings(**given)
    return taken
