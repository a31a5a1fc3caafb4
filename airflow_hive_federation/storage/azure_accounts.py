"""Holds the driver of Azure's store to the account in a location, whatever account the storage options name.

The driver (adlfs) goes by its options alone. With the options of another account, it would open the
container of the same name there: source and target might then be the same files, and a verification would
find them equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.options import StorageOptions, StorageValue

#: Environment variable by which adlfs finds a connection string if the options have none.
_STRING_VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"
# Hosts of an account: also its second region, private endpoints and zones of the name service, in each cloud.
_HOST = re.compile(
    r"(?:https?://)?(?P<account>[^./:]+?)(?:-secondary)?(?:\.privatelink)?(?:\.z\d+)?\.(?:blob|dfs)\.",
    re.IGNORECASE,
)


def account_options(location: str, host: str, options: StorageOptions) -> dict[str, StorageValue]:
    """Return adlfs' options for the account of a location in Hadoop's form.

    :param location: the location, for errors.
    :param host: the part of its authority after the container, ``account.dfs.core.windows.net``; empty if the
        location names no account, so that the options decide.
    :param options: the options for the location.
    :raises ConfigurationError: if an option, or the connection string, is of another account. The host of an
        emulator or proxy has no account's name, so ``account_host`` may be one.
    """
    if not host:
        return {}
    account = host.partition(".")[0]
    for origin, other in _accounts(options):
        if other.casefold() != account.casefold():
            raise ConfigurationError(
                f"{location} is in the account {account!r}, and {origin} is that of {other!r}.",
                remedy="Give each account its own options, by URI prefix.",
                path=location,
            )
    # The files of an account have another host for each of its interfaces; adlfs uses that of blobs.
    return {"account_name": account, "account_host": host.replace(".dfs.", ".blob.", 1)}


def _accounts(options: StorageOptions) -> Iterator[tuple[str, str]]:
    """Yield the accounts that options name, each after a description of the option."""
    text = str(options.get("connection_string") or os.environ.get(_STRING_VARIABLE) or "")
    # Its endpoint decides; a string with a shared access signature may name the account by nothing else.
    fields = {name.strip().lower(): value.strip() for name, _, value in _pairs(text)}
    named = fields.get("accountname", ""), _account_of(fields.get("blobendpoint", ""))
    yield from (("the connection string", account) for account in named if account)
    if name := options.get("account_name"):
        yield "the option account_name", str(name)
    if account := _account_of(str(options.get("account_host") or "")):
        yield "the option account_host", account


def _pairs(text: str) -> Iterator[tuple[str, str, str]]:
    return (part.partition("=") for part in text.split(";"))


def _account_of(host: str) -> str:
    """Return the account of a host or URL of Azure's; empty for another one."""
    match = _HOST.match(host)
    return match["account"] if match else ""
