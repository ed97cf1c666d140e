"""Vendors' own images of switch operating systems, as containerlab and netlab start them.

No image comes with mltswitch: who runs a lab brings them. What stands here is how the tools call an image and
its ports; sources are containerlab's pages of the kinds (docs/manual/kinds/*.md, 2026) and netlab's device
files (netsim/devices/*.yml, release 26.10).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from mltswitch.errors import UserInputError

LANES_OF_A_PORT: Final = 4
"""SONiC numbers ports by their first lane; the virtual box has four for each."""
MAXIMUM_NAME_CHARACTERS: Final = 15
"""The most characters that the name of a Linux interface may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """How one image of a switch OS is started and reached."""

    platform: str
    kind: str
    """containerlab's name for it."""
    image: str
    """The usual name and tag of what the user brings."""
    user: str
    """Whom the tool lets log in by a password, which an environment variable holds."""
    port: re.Pattern[str]
    """Names of ports that the image has."""
    examples: str
    link: Callable[[re.Match[str]], str]
    """From a match of `port` to the port's name in containerlab's list of links, such as `eth1`."""
    index: Callable[[re.Match[str]], int | None]
    """netlab's number of the port, which is all that its names are made of; None: none means this port."""
    has_link_addresses: bool = False
    """Whether containerlab configures the addresses that stand beside a link."""
    has_commands: bool = False
    """Whether commands of the topology file run where the switch's interfaces are."""
    netlab_device: str = ""
    """netlab's name of the device; empty: it knows none."""
    netlab_provider: str = "clab"
    """Which of netlab's providers starts the image."""
    netlab_defaults: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    """Settings of the device by which its ports get the names that `index` reads."""

    @property
    def variable(self) -> str:
        """The environment variable that says which image is started."""
        return f"{_word(self.kind)}_IMAGE"

    @property
    def password_variable(self) -> str:
        """The environment variable that holds the password."""
        return f"{_word(self.platform)}_PASSWORD"

    def link_name(self, switch: str, port: str) -> str:
        """The port in containerlab's links; raises UserInputError where the image has no such port."""
        return self.link(self._match(switch, port))

    def port_index(self, switch: str, port: str) -> int:
        """netlab's number of the port; raises UserInputError where it has no such port."""
        number = self.index(self._match(switch, port))
        if number is None:
            raise UserInputError(
                "netlab has no such port",
                where=f"{switch}:{port}",
                hint="use `mltswitch lab export containerlab`, which has",
            )
        return number

    def _match(self, switch: str, port: str) -> re.Match[str]:
        match = self.port.fullmatch(port)
        if match is None:
            raise UserInputError(
                f"an image of kind {self.kind} has no such port",
                where=f"{switch}:{port}",
                expected=self.examples,
                hint="name the ports in the fabric file's links as the image does",
            )
        return match


def _word(text: str) -> str:
    return text.replace("-", "_").upper()


def _lane(match: re.Match[str]) -> int:
    """The place of a port, from 0, by the number of its first lane."""
    return int(match[1]) // LANES_OF_A_PORT


def _first_lane(match: re.Match[str]) -> int | None:
    """The number of a port that is not broken out: 31 of Ethernet31/1."""
    number, _, lane = match[1].partition("/")
    return int(number) if lane == "1" else None


def _front_panel(match: re.Match[str]) -> int:
    """The place of a port of Enterprise SONiC, from 0, by its front panel's number or its first lane."""
    return int(match[1]) - 1 if match[1] else int(match[2]) // LANES_OF_A_PORT


_FIRST_LANES: Final = "|".join(str(LANES_OF_A_PORT * number) for number in range(64))
_LANE_NAME: Final = re.compile(rf"Ethernet({_FIRST_LANES})")
_LANE_EXAMPLES: Final = "Ethernet0, Ethernet4, … Ethernet252"

_SONIC_VM: Final = Image(
    platform="sonic",
    kind="sonic-vm",
    image="vrnetlab/sonic_sonic-vs:202505",
    user="admin",
    port=_LANE_NAME,
    examples=_LANE_EXAMPLES,
    link=lambda match: f"eth{_lane(match) + 1}",
    index=_lane,
    netlab_device="sonic",
    netlab_provider="libvirt",
)
IMAGES: Final = (
    Image(
        platform="eos",
        kind="arista_ceos",
        image="ceos:4.34.2F",
        user="admin",
        port=re.compile(r"Ethernet([1-9]\d{0,2}(?:/[1-9]\d?){0,2})"),
        examples="Ethernet1 or Ethernet1/1",
        # An underscore in the name of a link is a slash in that of the port.
        link=lambda match: f"eth{match[1].replace('/', '_')}",
        index=_first_lane,
        has_link_addresses=True,
        netlab_device="eos",
        netlab_defaults={
            "interface_name": "Ethernet{ifindex}/1",
            "clab": {"interface": {"name": "et{ifindex}_1"}},
        },
    ),
    _SONIC_VM,
    replace(_SONIC_VM, kind="sonic-vs", image="docker-sonic-vs:latest", netlab_device=""),
    Image(
        platform="cumulus",
        kind="nvidia_cumulusvx",
        image="vrnetlab/nvidia_cumulusvx:5.10.0",
        user="cumulus",
        port=re.compile(r"swp([1-9]\d{0,2})"),
        examples="swp1, swp2, …",
        link=lambda match: match[0],
        index=lambda match: int(match[1]),
        netlab_device="cumulus_nvue",
        netlab_provider="libvirt",
    ),
    Image(
        platform="dell-sonic",
        kind="dell_sonic",
        image="vrnetlab/dell_sonic:4.5.0",
        user="admin",
        port=re.compile(rf"Eth1/([1-9]\d?)|Ethernet({_FIRST_LANES})"),
        examples=f"Eth1/1, Eth1/2, … or {_LANE_EXAMPLES}",
        link=lambda match: f"eth{_front_panel(match) + 1}",
        index=_front_panel,
    ),
    Image(
        platform="linux",
        kind="linux",
        image="mltswitch-linux:latest",
        user="root",
        # eth0 leads to the management network.
        port=re.compile(rf"(?!(?:eth0|lo)$)[A-Za-z0-9_.-]{{1,{MAXIMUM_NAME_CHARACTERS}}}"),
        examples="any name but eth0, which leads to the management network",
        link=lambda match: match[0],
        index=lambda _: None,
        has_commands=True,  # netlab's linux is a host, and routes nothing
    ),
)
"""Of several kinds of a platform, the first is taken unless another is asked for."""
HOST_IMAGE: Final = "alpine:3"
"""Hosts need nothing but `ip`."""
HOST_KIND: Final = "linux"


def choose_images(kinds: Mapping[str, str], names: Mapping[str, str]) -> Mapping[str, Image]:
    """Platform → its image.

    Args:
        kinds: Platform → containerlab's kind, where it is not to be the first.
        names: Platform → name and tag of the image, where it is not the usual one.

    Raises:
        UserInputError: a platform or a kind is not known.
    """
    chosen: dict[str, Image] = {}
    for image in IMAGES:
        chosen.setdefault(image.platform, image)
    for platform, kind in kinds.items():
        known = {image.kind: image for image in IMAGES if image.platform == platform}
        if kind not in known:
            raise UserInputError(
                f"{platform} has no image of kind {kind!r}",
                where="--kind",
                expected=f"one of {', '.join(f'{each.platform}={each.kind}' for each in IMAGES)}",
            )
        chosen[platform] = known[kind]
    for platform, name in names.items():
        if platform not in chosen:
            raise UserInputError(
                f"no image of {platform!r} is known", where="--image", expected=f"one of {', '.join(chosen)}"
            )
        chosen[platform] = replace(chosen[platform], image=name)
    return MappingProxyType(chosen)
