"""Switch emulators that speak SSH: stateful, strict stand-ins for real ones.

Onyx, Cumulus, EOS, ICOS, SONiC, Enterprise SONiC.

A public fixture, for users' own tests, too:

    with EmulatorServer(OnyxDevice("onyx1", ports=4), host_key=key, authorized_keys=[public]) as server:
        ...  # connect to server.address, server.port; look at server.device.ports["1/1"]
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from mltswitch.lab.emulators.cumulus import CumulusDevice
from mltswitch.lab.emulators.dell_sonic import DellSonicDevice
from mltswitch.lab.emulators.device import EmulatedDevice
from mltswitch.lab.emulators.eos import EosDevice
from mltswitch.lab.emulators.faults import (
    Accept,
    Drop,
    DropBeforeLine,
    Faults,
    Late,
    Reboot,
    Refuse,
    RefuseLine,
)
from mltswitch.lab.emulators.icos import IcosDevice
from mltswitch.lab.emulators.onyx import OnyxDevice
from mltswitch.lab.emulators.sonic import SonicDevice
from mltswitch.lab.emulators.ssh_server import EmulatorServer, load_authorized_keys, load_host_key

KINDS: Final[Mapping[str, Callable[..., EmulatedDevice]]] = MappingProxyType(
    {
        "cumulus": CumulusDevice,
        "dell-sonic": DellSonicDevice,
        "eos": EosDevice,
        "icos": IcosDevice,
        "onyx": OnyxDevice,
        "sonic": SonicDevice,
    }
)
"""Platform → what makes a switch of it, from a host name, a number of ports and what makes it another box."""

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
