"""Who a host is towards its peers, and for how long."""

from datetime import datetime, timedelta
from typing import Final

from mltswitch.hostagent.control.security import Plaintext, Security
from mltswitch.hostagent.doctor.findings import Finding, Status

SOON: Final = timedelta(days=3)
"""Less than a weekend away."""


def keys_finding(security: Security, now: datetime) -> Finding:
    """Of keys that could be loaded: those that no peer would accept are an error before."""
    if isinstance(security, Plaintext):
        if not security.beyond_loopback:
            return Finding("keys", Status.OK, "none: this host talks over loopback alone")
        return Finding(
            "keys",
            Status.WARNING,
            "none: plain text beyond loopback",
            "nobody proves a name, and whoever reads the network can write into tensors",
            "mltswitch agent keys makes a folder for each host",
        )
    left = security.expires - now
    seen = f"{security.name}, valid until {security.expires:%Y-%m-%d %H:%M} UTC"
    if left > SOON:
        return Finding("keys", Status.OK, seen)
    return Finding(
        "keys",
        Status.WARNING,
        seen,
        "after that no peer accepts this host",
        f"where the keys were made: mltswitch agent keys {security.name} --force",
    )
