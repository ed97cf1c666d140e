"""All links of an agent: whose they are, which of two calls between the same ends counts, and how all
are left."""

import logging
import time
from collections.abc import Callable

from mltswitch.hostagent.errors import CONNECTED_ALREADY, NO_MORE_MAY_BE, PeerRefusedError
from mltswitch.hostagent.links import Link
from mltswitch.hostagent.words import encodable

Admit = Callable[[str], str | None]
"""Given a peer's name."""

_log = logging.getLogger(__name__)


class Roster:
    """Links in the order in which they began, those of peers by name, and connections by their tokens."""

    def __init__(self, own_name: str, maximum_peers: int, admit: Admit | None) -> None:
        """`admit`: says why a peer that calls is refused; nothing: it is not."""
        self._own_name, self._maximum_peers, self._admit = own_name, maximum_peers, admit
        self.links: list[Link] = []
        self.by_name: dict[str, Link] = {}
        """Of peers that have said hello, and are welcome."""
        self.by_token: dict[int, Link] = {}

    def dialled(self, peer: str | None) -> Link | None:
        """Our own attempt to connect with it, as long as it has not said hello."""
        found = (link for link in self.links if peer is not None and link.expected == peer)
        return next((link for link in found if link is not self.by_name.get(link.name)), None)

    def is_another_call(self, link: Link) -> bool:
        """Whether its end says nothing of the peer that it names: that one is connected, or being called."""
        known = self.by_name.get(link.name) or self.dialled(link.name)
        return link.expected is None and known not in {None, link}

    def held_back_for(self, link: Link) -> list[Link]:
        """The peer's own calls, which wait for what becomes of ours."""
        return [entry for entry in self.links if entry.is_held_back and entry.claimed_name == link.expected]

    def check(self, link: Link, name: str) -> None:
        """Raises PeerRefusedError where it must not become this peer's."""
        if name == self._own_name:
            raise PeerRefusedError("has the name of this agent, which does not connect to itself", peer=name)
        if name in self.by_name:
            raise PeerRefusedError(CONNECTED_ALREADY, peer=name)
        if link.expected is not None or self.dialled(name) is not None:
            return  # whom we call is welcome to call us
        if len(self.by_name) >= self._maximum_peers:
            raise PeerRefusedError(
                f"{len(self.by_name)} peers are connected, and {NO_MORE_MAY_BE}", peer=name
            )
        refusal = "" if self._admit is None else _asked(self._admit, name)
        if refusal:
            raise PeerRefusedError(refusal, peer=name)

    def welcome(self, link: Link, name: str) -> None:
        """It is this peer's from now on."""
        link.is_welcome = True
        self.by_name[name] = link

    def say_goodbye(self, reason: str, most_seconds: float) -> None:
        """To all who may still hear it, and wait until their kernels have taken it."""
        for link in list(self.links):
            link.say_goodbye(reason, time.monotonic_ns())
        until = time.monotonic() + most_seconds
        while time.monotonic() < until and any(link.channel.waiting_bytes for link in self.links):
            for link in self.links:
                link.channel.flush()
            time.sleep(0.001)

    def forget_name(self, link: Link) -> None:
        """Its peer is connected by it no more, if it was."""
        if self.by_name.get(link.name) is link:
            del self.by_name[link.name]


def _asked(admit: Admit, name: str) -> str:
    """Where the user's function fails, this peer is refused, and nothing else ends; the log says how."""
    try:
        answer = admit(name)
        if answer is None or isinstance(answer, str):
            return encodable(answer or "")
        _log.error("`admit` answered an object of type %s for %s", type(answer).__name__, name)
    except BaseException:  # noqa: BLE001  (also SystemExit: the thread serves all peers)
        _log.exception("`admit` has failed for %s", name)
    return "cannot be decided about now"
