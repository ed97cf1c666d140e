"""Switch emulators that speak SSH: stateful, strict stand-ins for real switches.

Onyx, Cumulus, EOS, ICOS, SONiC, Enterprise SONiC.

They are a public fixture, which users' own tests can use, too:

    with EmulatorServer(OnyxDevice("onyx1", ports=4), host_key=key, authorized_keys=[public]) as server:
        ...  # connect to server.address, server.port; ask server.device.fact("1/1", "trust")
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from switchsim.cumulus import CumulusDevice
from switchsim.dell_sonic import DellSonicDevice
from switchsim.device import DeviceKind
from switchsim.eos import EosDevice
from switchsim.faults import (
    Accept,
    Drop,
    DropBeforeLine,
    Faults,
    Late,
    Reboot,
    Refuse,
    RefuseLine,
)
from switchsim.icos import IcosDevice
from switchsim.onyx import OnyxDevice
from switchsim.sonic import SonicDevice
from switchsim.ssh_server import EmulatorServer, load_authorized_keys, load_host_key

KINDS: Final[Mapping[str, DeviceKind]] = MappingProxyType(
    {
        "cumulus": CumulusDevice,
        "dell-sonic": DellSonicDevice,
        "eos": EosDevice,
        "icos": IcosDevice,
        "onyx": OnyxDevice,
        "sonic": SonicDevice,
    }
)
"""Name of an operating system → the class of its emulated switches."""

__all__ = [
    "KINDS",
    "Accept",
    "CumulusDevice",
    "DellSonicDevice",
    "Drop",
    "DropBeforeLine",
    "EmulatorServer",
    "EosDevice",
    "Faults",
    "IcosDevice",
    "Late",
    "OnyxDevice",
    "Reboot",
    "Refuse",
    "RefuseLine",
    "SonicDevice",
    "load_authorized_keys",
    "load_host_key",
]
