"""Decides, from storage options, how a JVM reaches an HDFS with Kerberos: Hadoop's settings, and its login.

A Python process has a client per store, and each client has its own settings and login. A JVM has one
configuration and one login for all stores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from airflow_hive_federation.errors import ConfigurationError
from airflow_hive_federation.storage.filesystem import canonical, options_by_prefix, parse_location
from airflow_hive_federation.storage.options import StorageOptions, StorageValue

#: Hadoop's setting of the way in which clients authenticate.
AUTHENTICATION = "hadoop.security.authentication"
KERBEROS = "kerberos"
#: Storage option that names the client of HDFS, see :class:`~.hdfs.HdfsFileSystem`.
CLIENT = "client"
_LOGIN = ("kerberos_principal", "kerberos_keytab", "kerberos_cache")
#: Names of secret settings, as in ``hadoop.security.sensitive-config-keys``, and of all keys.
_SECRET = re.compile(r"secret|password|passphrase|credential|\.pass$|token$|key$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class KerberosLogin:
    """A client's login.

    :param principal: the client's principal; empty for the ticket's.
    :param keytab: path of the keytab; empty for a ticket.
    :param cache: path of the ticket cache; empty for that of ``KRB5CCNAME``.
    """

    principal: str = ""
    keytab: str = ""
    cache: str = ""


@dataclass(frozen=True, kw_only=True)
class HadoopAccess:
    """The parts of storage options that concern HDFS.

    :param settings: Hadoop's settings of each prefix, by prefix; the prefix is empty for options of all URIs.
    :param logins: the different logins, in the order of their prefixes; none without Kerberos.
    :param config_dir: the directory of Hadoop's files; empty if the options name none, or several.
    :param stores: URIs of the NameNodes and name services that have options of their own.
    """

    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    logins: tuple[KerberosLogin, ...] = ()
    config_dir: str = ""
    stores: tuple[str, ...] = ()

    @classmethod
    def of(cls, options: StorageOptions | None) -> Self:
        """Read storage options, see :func:`~.filesystem.options_for`."""
        chosen = {
            prefix: values
            for prefix, values in sorted(options_by_prefix(options).items())
            if not prefix or parse_location(prefix).scheme == "hdfs"
        }
        settings = {prefix: _settings(values) for prefix, values in chosen.items()}
        logins = [
            _login(values)
            for prefix, values in chosen.items()
            if _asks_for_kerberos(values, settings[prefix])
        ]
        directories = {str(values["config_dir"]) for values in chosen.values() if values.get("config_dir")}
        stores = {
            "/".join(canonical(prefix).split("/")[:3])
            for prefix in chosen
            if prefix and parse_location(prefix).authority
        }
        return cls(
            settings=settings,
            logins=tuple(dict.fromkeys(logins)),
            config_dir=directories.pop() if len(directories) == 1 else "",
            stores=tuple(sorted(stores)),
        )

    def common_settings(self) -> dict[str, str]:
        """Return the settings of all prefixes, for a JVM that reaches all of them.

        :raises ConfigurationError: two prefixes have different values of a setting.
        """
        made: dict[str, str] = {}
        for values in self.settings.values():
            for name, value in values.items():
                if made.setdefault(name, value) != value:
                    raise ConfigurationError(
                        f"Two stores have different values of {name} in the storage options, and Spark's JVM "
                        "has one value for both.",
                        remedy="Give both the same value, or put it into Hadoop's files (HADOOP_CONF_DIR).",
                        setting=name,
                    )
        return made

    def common_login(self) -> KerberosLogin:
        """Return the login for a JVM that reaches all stores; without one, that of ``KRB5CCNAME``.

        :raises ConfigurationError: two prefixes have different logins, or a keytab has no principal.
        """
        if len(self.logins) > 1:
            names = ", ".join(
                login.principal or f"the ticket in {login.cache or 'KRB5CCNAME'}" for login in self.logins
            )
            raise ConfigurationError(
                f"The stores have different Kerberos logins ({names}), and Spark's JVM has one for all.",
                remedy="Give a principal that may read both sides: principal and keytab of the Spark "
                "connection, or the properties spark.kerberos.principal and spark.kerberos.keytab.",
            )
        login = self.logins[0] if self.logins else KerberosLogin()
        if login.keytab and not login.principal:
            raise ConfigurationError(
                f"The storage options have the keytab {login.keytab} and no principal, which Java needs.",
                remedy="Set kerberos_principal, with its realm.",
            )
        return login


def options_of_driver(options: StorageOptions | None, *, keytabs: bool) -> StorageOptions | None:
    """Return the storage options of a driver that another machine starts; none of them is a secret.

    They are the settings and the client of HDFS, without the directories of this machine.

    :param keytabs: the driver uses a keytab under the same path, in place of delegation tokens.
    :return: ``None`` if a driver would need other options than these.
    """
    made: dict[str, StorageValue] = {}
    for prefix, values in options_by_prefix(options).items():
        login = {name: values[name] for name in _LOGIN if values.get(name)}
        settings = _settings(values)
        if (
            (prefix and parse_location(prefix).scheme != "hdfs")
            or values.keys() - settings.keys() - {*_LOGIN, CLIENT, "config_dir"}
            or any(_SECRET.search(name) for name in settings)
            or (keytabs and "kerberos_cache" in login)
        ):
            return None
        client = {CLIENT: values[CLIENT]} if values.get(CLIENT) else {}
        chosen = {**settings, **client, **(login if keytabs else {})}
        if not prefix:
            return chosen
        if chosen:
            made[prefix] = chosen
    return made


def _settings(values: Mapping[str, object]) -> dict[str, str]:
    # Hadoop's settings have dots in their names; the options of drivers have none.
    return {name: str(value) for name, value in values.items() if "." in name}


def _login(values: Mapping[str, object]) -> KerberosLogin:
    return KerberosLogin(**{name.removeprefix("kerberos_"): str(values.get(name) or "") for name in _LOGIN})


def _asks_for_kerberos(values: Mapping[str, object], settings: Mapping[str, str]) -> bool:
    return settings.get(AUTHENTICATION, "").lower() == KERBEROS or _login(values) != KerberosLogin()
