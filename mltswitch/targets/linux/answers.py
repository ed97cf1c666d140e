"""The commands that tell what a host runs, and their answers as typed entries."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import DeviceError
from mltswitch.targets.common import json_in
from mltswitch.targets.linux.lines import LEVELS
from mltswitch.targets.state import SwitchState

QDISC_QUERY: Final = "tc -j -d qdisc show"
ROUTE_QUERY: Final = "ip -j -d -N route show"
SEGMENT_QUERY: Final = "ip -j -d -N -6 route show"
LINK_QUERY: Final = "ip -j -d link show"
FORWARDING_QUERY: Final = "grep -s . /proc/sys/net/ipv6/conf/*/forwarding || true"
CLSACT: Final = "clsact"
INGRESS: Final = "ingress"
EGRESS: Final = "egress"
"""Name of clsact's side for packets that leave; `ingress` is also a qdisc of its own, without this side."""
NO_HANDLE: Final = "0:"
"""The handle of the kernel's own default qdiscs."""
PLACES: Final = (*(f"parent {handle}" for handle in LEVELS), INGRESS, EGRESS)
"""Where filters are queried on each port: `parent HANDLE`, and both sides of clsact."""


class _Answer(BaseModel):
    # Versions of iproute2 add fields; what we need is named, the rest is theirs.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Qdisc(_Answer):
    """One entry of `tc qdisc show`."""

    kind: str
    handle: str
    dev: str
    parent: str = ""
    root: bool = False
    options: dict[str, Any] = {}

    def __str__(self) -> str:
        name = f"{self.kind} {self.handle}"
        return f"root {name}" if self.root else f"{name} below {self.parent}"

    @property
    def above(self) -> str:
        """Where the qdisc hangs, in tc's words: `root` or `parent HANDLE`."""
        return "root" if self.root else f"parent {self.parent}"

    @property
    def arrives(self) -> bool:
        """Whether it handles arriving packets, and stays when the root qdisc is replaced (TC_H_INGRESS)."""
        return self.parent == "ffff:fff1"


class FilterOptions(_Answer):
    """What one filter matches, and where it sends packets."""

    classid: str = ""
    indev: str = ""
    keys: dict[str, Any] = {}
    actions: list[dict[str, Any]] = []


class FilterAnswer(_Answer):
    """One entry of `tc filter show`; before those of each preference stands one without options."""

    protocol: str
    preference: int = Field(alias="pref")
    kind: str
    options: FilterOptions

    def __str__(self) -> str:
        return f"{self.kind} for {self.protocol}, preference {self.preference}"


class LinkAnswer(_Answer):
    """One entry of `ip link show`."""

    ifname: str
    master: str = ""
    lower: str = Field(default="", alias="link")
    linkinfo: dict[str, Any] = {}
    xdp: dict[str, Any] = {}


class RouteAnswer(_Answer):
    """One entry of `ip route show`."""

    prefix: str = Field(alias="dst")
    protocol: str
    kind: str = Field(default="unicast", alias="type")
    gateway: IPv4Address | IPv6Address = IPv4Address(0)
    encap: str = ""
    action: str = ""
    port: str = Field(alias="dev", default="")
    metric: int = 0
    nexthops: list[Any] = []


QDISCS: Final = TypeAdapter(list[Qdisc])
FILTERS: Final = TypeAdapter(list[FilterAnswer])
ROUTES: Final = TypeAdapter(list[RouteAnswer])
LINKS: Final = TypeAdapter(list[LinkAnswer])
_Entries = TypeVar("_Entries")


def filter_query(wanted: SwitchState) -> str:
    """The command that lists all filters of all ports by one process, an answer line for each place.

    In a batch with -j, tc prints an array for each command, on a line of its own, also where it is empty
    (iproute2 4.18 to 7.1, tc_filter_list), and it ends at the first that fails.
    """
    places = " ".join(f'"{place}"' if " " in place else place for place in PLACES)
    return (
        f"for port in {_names(wanted)}; do for place in {places}; do "
        "echo filter show dev $port $place; done; done | tc -j -batch -"
    )


def class_query(wanted: SwitchState) -> str:
    """The command that lists all classes of all ports, each port's behind a line `# port`."""
    # A process for each port: of classes tc says neither the port nor where a command's answer ends. Not -j:
    # it prints classes as text then, too (iproute2 6.1).
    return (
        f'for port in {_names(wanted)}; do echo "# $port"; tc class show dev $port parent 20: || exit; done'
    )


def _names(wanted: SwitchState) -> str:
    return " ".join(port.name for port in wanted.ports)


def answer(answers: Mapping[str, str], query: str) -> str:
    """The answer to a query; raises DeviceError where there is none."""
    if query not in answers:
        raise DeviceError("was not answered", where=query)
    return answers[query]


def load(kind: TypeAdapter[_Entries], answers: Mapping[str, str], query: str) -> _Entries:
    """The entries in the answer to a query; raises DeviceError for an answer that cannot be read."""
    try:
        # Where there is nothing to list, some versions of tc and ip print nothing at all.
        return kind.validate_python(json_in(answer(answers, query) or "[]", may_contradict=True))
    except ValidationError as error:
        problem = error.errors()[0]
        found = f"{'.'.join(map(str, problem['loc']))} {plain_words(problem)}"
    except ValueError as error:
        found = str(error)
    raise DeviceError(f"the answer cannot be read: {found}", where=query)
