"""The commands that tell what a host runs, and their answers as typed entries."""

import json
import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from mltswitch.documents import plain_words
from mltswitch.errors import DeviceError
from mltswitch.targets.common import json_in
from mltswitch.targets.linux.layout import LEVELS
from mltswitch.targets.state import SwitchState

QDISC_QUERY: Final = "tc -j -d qdisc show"
ROUTE_QUERY: Final = "ip -j -d -N route show"
SEGMENT_QUERY: Final = "ip -j -d -N -6 route show"
IDENTITY_QUERY: Final = (
    "grep -s . /proc/sys/kernel/hostname /etc/machine-id /etc/os-release /sys/class/dmi/id/product_name "
    "|| true"
)
"""Each line that there is, behind the name of its file and a colon."""
FORWARDING_QUERY: Final = "grep -s . /proc/sys/net/ipv6/conf/*/forwarding || true"
INGRESS_PARENT: Final = "ffff:fff1"
"""Where ingress and clsact stand, and stay when the root is replaced (linux pkt_sched.h, TC_H_INGRESS)."""
CLSACT: Final = "clsact"
INGRESS: Final = "ingress"
EGRESS: Final = "egress"
"""Names of both sides of clsact; `ingress` is a qdisc of its own as well, without the other side."""


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


class FilterOptions(_Answer):
    """What one filter matches, and where it sends."""

    classid: str = ""
    indev: str = ""
    keys: dict[str, Any] = {}
    actions: list[Any] = []


class FilterAnswer(_Answer):
    """One entry of `tc filter show`."""

    protocol: str
    preference: int = Field(alias="pref")
    kind: str
    options: FilterOptions | None = None

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
    via: dict[str, Any] = {}
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
    """All filters of all ports, by one process: a line for each place of each port, in this order.

    In a batch with -j, tc prints an array for each command, on a line of its own, also where it is empty
    (iproute2 4.18 to 7.1, tc_filter_list), and it ends at the first that fails.
    """
    places = " ".join(f'"{place}"' if " " in place else place for place in _PLACES)
    return (
        f"for port in {_names(wanted)}; do for place in {places}; do "
        "echo filter show dev $port $place; done; done | tc -j -batch -"
    )


_PLACES: Final = (*(f"parent {handle}" for handle in LEVELS), INGRESS, EGRESS)


def filter_sections(answers: Mapping[str, str], wanted: SwitchState) -> dict[str, str]:
    """Port and handle, or port and side of clsact → its line of the answer to `filter_query`."""
    query = filter_query(wanted)
    places = [f"{port.name} {place.removeprefix('parent ')}" for port in wanted.ports for place in _PLACES]
    # A filter that tc prints as text, in the middle of its JSON, may have lines of its own.
    _, *sections = re.split(r"^(?=\[)", "\n" + answer(answers, query), flags=re.MULTILINE)
    if len(sections) != len(places):
        raise DeviceError(
            f"answered {len(sections)} lines, not {len(places)}",
            where=query,
            hint="`tc filter show dev PORT ingress` shows them; iproute2 before 4.18 has no JSON for them",
        )
    return dict(zip(places, sections, strict=True))


_FILTER: Final = re.compile(
    r'"protocol":"(?P<protocol>[^"]+)","pref":(?P<pref>[0-9]+),"kind":"(?P<kind>[^"]+)"'
    r"|^filter (?:parent \S+ )?protocol (?P<protocol2>\S+) pref (?P<pref2>[0-9]+) (?P<kind2>\S+)",
    re.MULTILINE,
)
_LEADS_TO: Final = re.compile(r'(?:flowid|classid)"?[ :]"?([0-9a-f]+:[0-9a-f]+)')


def filters_of(section: str, port: str, place: str) -> list[FilterAnswer]:
    """The filters of one place, without the empty entry that precedes those of each preference.

    iproute2 before 5.17 prints u32 filters, and others their own kinds, as plain text in the middle of its
    JSON (`"options": {fh 800: ht divisor 1 }`). What such a text matches is not read, for none of ours is
    one; its kind, protocol, preference and class are. Raises DeviceError, naming the port and the place.
    """
    try:
        entries = FILTERS.validate_python(json_in(section, may_contradict=True))
    except ValueError:
        heads = list(_FILTER.finditer(section))
        ends = [*(head.start() for head in heads[1:]), len(section)]
        try:
            entries = FILTERS.validate_python(
                [_entry(head, section[head.start() : end]) for head, end in zip(heads, ends, strict=True)]
            )
        except ValueError:
            entries = []
        if not entries:
            raise DeviceError(
                f"cannot read which filters stand at {port}, {place}: {section.strip()[:80]!r}",
                where=f"tc -j filter show dev {port} {place}",
                hint=f"`tc filter show dev {port} {place}` shows them without JSON",
            ) from None
    return [entry for entry in entries if entry.options is not None]


def _entry(head: re.Match[str], text: str) -> dict[str, object]:
    """One filter by itself; of one in plain text, what every kind says."""
    try:
        return dict(json.JSONDecoder().raw_decode("{" + text)[0])
    except ValueError:
        leads_to = _LEADS_TO.search(text)
        named = {name.rstrip("2"): value for name, value in head.groupdict().items() if value}
        return {**named, "options": {"classid": leads_to[1] if leads_to else ""}}


def class_query(wanted: SwitchState) -> str:
    """All classes of all ports: what follows each line `# port`."""
    # A process for each port: of classes tc says neither the port nor where a command's answer ends. Not -j:
    # it prints classes as text then, too (iproute2 6.1).
    return (
        f'for port in {_names(wanted)}; do echo "# $port"; tc class show dev $port parent 20: || exit; done'
    )


def _names(wanted: SwitchState) -> str:
    return " ".join(port.name for port in wanted.ports)


def class_sections(answers: Mapping[str, str], wanted: SwitchState) -> dict[str, str]:
    """Port → its lines of the answer to `class_query`."""
    sections: dict[str, list[str]] = {}
    current: list[str] = []
    for line in answer(answers, class_query(wanted)).split("\n"):
        if line.startswith("# "):
            current = sections.setdefault(line.removeprefix("# "), [])
        else:
            current.append(line)
    return {name: "\n".join(lines) for name, lines in sections.items()}


def answer(answers: Mapping[str, str], query: str) -> str:
    """What was answered; raises DeviceError where nothing was."""
    if query not in answers:
        raise DeviceError("was not answered", where=query)
    return answers[query]


def load(kind: TypeAdapter[_Entries], answers: Mapping[str, str], query: str) -> _Entries:
    """The entries that were answered; raises DeviceError for what cannot be read."""
    try:
        # Where there is nothing to list, some versions of tc and ip print nothing at all.
        return kind.validate_python(json_in(answer(answers, query) or "[]", may_contradict=True))
    except ValidationError as error:
        problem = error.errors()[0]
        place = ".".join(str(part) for part in problem["loc"])
        raise DeviceError(
            f"the answer cannot be read: {place} {plain_words(problem)}",
            where=query,
        ) from None
    except ValueError as error:
        raise DeviceError(f"the answer cannot be read: {error}", where=query) from None


def hexadecimal(value: object, base: int) -> int:
    """tc prints such numbers as a JSON number or as text, by version and key; raises DeviceError."""
    try:
        return value if isinstance(value, int) else int(str(value), base)
    except ValueError:
        raise DeviceError(f"{value!r} is no number", where="tc -j filter show") from None
