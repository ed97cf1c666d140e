"""All links of an agent: whose they are, and which of two calls between the same ends counts."""

from mltswitch.hostagent.links import Link


class Roster:
    """Links in the order in which they began, those of peers by name, and connections by their tokens."""

    def __init__(self) -> None:
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
        return [entry for entry in self.links if entry.is_held_back and entry.name == link.expected]

    def forget_name(self, link: Link) -> None:
        """Its peer is connected by it no more, if it was."""
        if self.by_name.get(link.name) is link:
            del self.by_name[link.name]
