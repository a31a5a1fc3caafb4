"""Explains the failures of the Kerberos library: reason and remedy by the failure's number.

The numbers are those of the protocol (RFC 4120, 7.5.9) and of MIT's library, above the base of its table.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

_BASE = -1765328384
_UNREACHABLE = _BASE + 156

_NO_TICKET = "Run kinit, start 'airflow kerberos', or set kerberos_keytab; KRB5CCNAME names the cache."
_NO_KEY = (
    "Compare the client's principal, its realm included, with those of the keytab (klist -kt), and check "
    "that this user may read the file."
)
_OTHERWISE = (
    "Check the server's principal, the keytab or ticket (klist), and the clocks; KRB5_TRACE=/dev/stderr "
    "prints every step."
)
#: Reason and remedy by the number of the failure.
_KNOWN: dict[int, tuple[str, str]] = {
    6: (
        "the KDC does not know the client's principal",
        "Correct the client's principal, or create it in the realm; the name has to match exactly.",
    ),
    7: (
        "the KDC does not know the server's principal",
        "Give the principal as the server's hive-site.xml has it (_HOST is the URI's host), with its realm.",
    ),
    18: ("the client's principal is locked", "Have the realm's administrator unlock it."),
    23: ("the password of the client's principal has expired", "Change it, and write the keytab again."),
    24: (
        "the keytab's keys are not those of the KDC",
        "Write the keytab again (ktadd): its keys are older than those of the realm, or of another realm.",
    ),
    31: ("the server's keys are not those of the ticket", "Run kinit again, or renew the server's keytab."),
    32: (
        "the ticket has expired",
        "Run kinit again, let 'airflow kerberos' renew the ticket, or set kerberos_keytab.",
    ),
    33: (
        "the ticket is not valid yet",
        "Run kinit again, and compare the clocks of this machine and the KDC.",
    ),
    37: (
        "the clocks differ too much",
        "Set the clocks of this machine, the KDC and the server by NTP, then run kinit again.",
    ),
    68: ("the realm is not the KDC's", "Correct the realm of the principals, or krb5.conf (KRB5_CONFIG)."),
    154: (
        "krb5.conf does not know the realm",
        "Correct the realm of the principals, or name its KDC in krb5.conf (KRB5_CONFIG).",
    ),
    181: ("the keytab has no key of the client's principal", _NO_KEY),
    220: (
        "no KDC of the realm is known",
        "Correct the realm of the principals, or name its KDC in krb5.conf (KRB5_CONFIG).",
    ),
}
_EXPIRED = _BASE + 32
#: Numbers of an empty or missing cache, which the library reports for a keytab that it cannot use, too.
_NO_CREDENTIALS = frozenset(_BASE + number for number in (140, 141, 142, 195))


@dataclass(frozen=True, kw_only=True)
class KerberosFailure:
    """A failure of the Kerberos library.

    :param text: its message.
    :param code: its number (the minor status of GSSAPI).
    :param expired: the library reports expired credentials, without a number of its own.
    :param silent: no KDC answered within the deadline.
    """

    text: str
    code: int = 0
    expired: bool = False
    silent: bool = False

    @property
    def is_absence(self) -> bool:
        """Return whether no KDC answered."""
        return self.silent or self.code == _UNREACHABLE


def explain(failure: KerberosFailure, keytab: str | None) -> tuple[str, str]:
    """Return reason and remedy of a failure; the reason is empty if its number is not known.

    :param keytab: the client's keytab; ``None`` for the ticket in the cache.
    """
    code = _EXPIRED if failure.expired else failure.code
    if code in _NO_CREDENTIALS and keytab is not None:
        return f"the keytab {keytab} cannot be read, or has no key of the principal", _NO_KEY
    if code in _NO_CREDENTIALS:
        return "no ticket is in the cache", _NO_TICKET
    return _KNOWN.get(code - _BASE, ("", _OTHERWISE))


def minor_status(code: int) -> int:
    """Return the number of a failure from GSSAPI's minor status, which has no sign."""
    return code - (1 << 32) if code >= 1 << 31 else code


def credentials(
    gssapi: ModuleType, *, principal: str | None = None, keytab: str | None = None, cache: str | None = None
) -> object:
    """Return the client's credentials: from the keytab, or the tickets that ``kinit`` obtained.

    :param gssapi: the package of that name.
    :param principal: the client's principal; ``None`` for that of the ticket, or of the keytab's first key.
    :param keytab: path of the keytab; ``None`` for a ticket.
    :param cache: path of the ticket cache; ``None`` for that of ``KRB5CCNAME``.
    :return: ``None`` for the ticket of ``KRB5CCNAME``.
    """
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    if keytab:
        # The connections of this process share the tickets, and renew them from the keytab.
        store = {"client_keytab": keytab, "ccache": f"MEMORY:{keytab}:{principal or ''}"}
    elif cache:
        store = {"ccache": cache}
    else:
        return None if name is None else gssapi.Credentials(name=name, usage="initiate")
    return gssapi.Credentials(name=name, usage="initiate", store=store)
