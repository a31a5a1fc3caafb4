"""Builds and escapes partition names in the same way as Hive."""

from __future__ import annotations

from collections.abc import Sequence

#: The value of null and of the empty string in partition names (``hive.exec.default.partition.name``).
DEFAULT_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# FileUtils.charToEscape of Hive's common package: control characters, and characters with a meaning in paths.
_ESCAPED = {chr(code) for code in (*range(0x01, 0x20), 0x7F)} | set("\"#%'*/:=?\\{[]^")


def partition_name(keys: Sequence[str], values: Sequence[str]) -> str:
    """Return a name like ``year=2013/month=1`` with Hive's escapes (``FileUtils.makePartName``)."""
    return "/".join(
        f"{escape(key.lower())}={escape(value) or DEFAULT_PARTITION}"
        for key, value in zip(keys, values, strict=True)
    )


def escape(text: str) -> str:
    """Escape a key or value for a partition's name and directory (``FileUtils.escapePathName``)."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in text)


def unescape(text: str) -> str:
    """Undo :func:`escape` (``FileUtils.unescapePathName``): a ``%`` without two hexadecimal digits stays."""
    parts = text.split("%")
    out = [parts[0]]
    for part in parts[1:]:
        code = part[:2]
        if len(code) == 2 and all(char in "0123456789abcdefABCDEF" for char in code):
            out.append(chr(int(code, 16)) + part[2:])
        else:
            out.append("%" + part)
    return "".join(out)
