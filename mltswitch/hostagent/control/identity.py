"""A peer's identity is one name: the host's, as the plan has it and as its certificate says (a DNS name)."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Final

HOST_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-])){0,62}", re.ASCII)
"""Names of the fabric that a certificate can carry: no empty label, 63 characters or fewer."""


def host_name_problem(name: str) -> str:
    """Why no certificate can carry this name; empty: one can."""
    if not HOST_NAME.fullmatch(name):
        return "is not a host name of letters, digits, '-', '_' and single dots, 63 characters or fewer"
    try:
        ip_address(name)
    except ValueError:
        return ""
    return "is an address, and a peer is known by its name"


def certified_name(certificate: Mapping[str, Any] | None) -> str | None:
    """The one DNS name of a verified certificate as `ssl` decodes it; None where it has none, or several."""
    alternatives = (certificate or {}).get("subjectAltName", ())
    names = [value for kind, value in alternatives if kind == "DNS"]
    return names[0] if len(names) == 1 and not host_name_problem(names[0]) else None
