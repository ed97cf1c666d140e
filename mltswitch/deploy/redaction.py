"""Text of a switch without what identifies its site: only what is known to be harmless stays.

What stays is listed, and nothing else:

- words that the reader of that switch OS knows itself: those in its grammar and its patterns;
- names of ports as the OS numbers them, and names of mltswitch's own objects;
- numbers of up to nine digits, and longer ones that end in three zeros, as rates and sizes do;
- model and release, as the switch told them;
- punctuation and white space.

All else is renamed, the same thing to the same new name everywhere, so that what belongs together still does:
words to `x1`, `x2`, …; IPv4 addresses to others from 10.0.0.0 on, with the second half of each kept, for
masks and next hops have to fit; IPv6 addresses to 2001:db8::/32; MAC addresses to 02:00:00:00:00:01, ….
Behind a word such as `password`, `key`, `bgp` or `description`, everything to the end of the line is renamed,
also words and numbers that are known.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from ipaddress import IPV4LENGTH, IPv4Address, IPv4Network, IPv6Address, ip_network
from typing import Final

_HALF: Final = 16
"""Bits of an IPv4 address that are replaced."""
_TEN: Final = int(IPv4Address("10.0.0.0"))
_LOOPBACK: Final = int(IPv4Address("127.0.0.0"))
_MULTICAST: Final = int(IPv4Address("224.0.0.0"))
_DOCUMENTATION: Final = int(IPv6Address("2001:db8::"))
_KEPT_BLOCKS: Final = tuple(map(IPv4Network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3")))
"""What names no host: this network, this machine, masks and multicast."""
_LONGEST_NUMBER: Final = 9
_SHORTEST_KEPT: Final = 4
"""A model or a release of fewer characters would be found inside other words."""
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")
_SECRET: Final = re.compile(
    r"(?i)(?<![a-z0-9])(?:secrets?|pass(?:word|wd|key|phrase)s?|keys?|psk|community|communities|hash(?:ed)?|"
    r"md5|sha-?\d*|token|private|username|user|credentials?|certificate|banner|motd|bgp(?:_asn)?|asn|(?:remote|local)-as|"
    r"desc(?:ription)?|contact|location|remark|comment|snmp(?:-server)?|asset|circuit)(?![a-z0-9])"
)
"""What follows on the line is a secret, or says whose the switch is."""
_SCANNED: Final = re.compile(
    r"""
    (?P<mac>(?<![\w:.-])(?:[0-9A-Fa-f]{2}(?P<join>[:-])(?:[0-9A-Fa-f]{2}(?P=join)){4}[0-9A-Fa-f]{2}
           |(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4})(?![\w:]))
    |(?P<ipv6>(?<![\w:.])(?=[0-9A-Fa-f:]*:[0-9A-Fa-f]*:)[0-9A-Fa-f:]{2,39}(?:/\d{1,3})?(?![\w:]))
    |(?P<ipv4>(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?(?![\w]))
    |(?P<escape>\\(?:u[0-9A-Fa-f]{4}|[nrtbf]))
    |(?P<word>\w(?:[\w./+-]*\w)?)
    """,
    re.VERBOSE,
)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|0x[0-9A-Fa-f]{1,4}")
_PORT: Final = re.compile(
    r"en(?:o\d{1,4}|s\d{1,4}|p\d{1,4}s\d{1,3})(?:f\d{1,2})?(?:np\d{1,2})?(?:d\d)?|"
    r"(?:Ethernet|Eth|Management|Loopback|Vlan|[Pp]ort-?[Cc]hannel|[Pp]o|[Ll]ag|swp|bond|eth|te|fo|hu|gi|vlan|lo|CPU)"
    r"\d{1,4}(?:s\d{1,2})?(?:/\d{1,3}){0,3}|\d{1,2}(?:/\d{1,3}){1,3}"
)
_OURS: Final = re.compile(
    r"MLT(?:_[A-Z0-9]+)*(?:_Ethernet\d{1,4})?|(?:mlt|mltswitch)(?:-(?:[a-z]{1,12}\d{0,3}(?:s\d{1,2})?|\d{1,4})){1,4}"
    r"|mltswitch-[a-z]{1,12}-[0-9a-f]{8}"
)
"""A lock has more in its name: whose it is, and since when."""
_NUMBERED: Final = re.compile(r"([A-Za-z]\w*?)[-_]\d{1,3}")
_MEASURE: Final = re.compile(r"\d{1,9}(?:\.\d+)?(?:%|[kKMG]?i?(?:bps|[bB]))")
_RANGE: Final = re.compile(r"\d{1,4}-\d{1,4}")
_COMMON_TEXT: Final = """
true false null none on off yes no up down mltswitch
be ef cs0 cs1 cs2 cs3 cs4 cs5 cs6 cs7 af11 af12 af13 af21 af22 af23 af31 af32 af33 af41 af42 af43
asic azure build building class count current default defaults distribution dwrr hwsku instances linux
management manufacturer max min mode non-ip platform priority probability product scale software traffic type
version
"""
_COMMON: Final = frozenset(_COMMON_TEXT.split())
"""States, names of code points (RFC 2474, 2597, 3246), and words of which headings are made."""
_NO_ESCAPE: Final = re.compile(r"\\[A-Za-z]")
_VOCABLE: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.+-]*[A-Za-z0-9])?")
_OPTIONAL: Final = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)[A-Za-z]\?")


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """The words of texts that are our own, as `known_words` has them."""
    found = (re.findall(r"\w+", text) + re.findall(r"\w(?:[\w-]*\w)?", text) for text in texts)
    return frozenset(word.casefold() for words in found for word in words)


@cache
def known_words(platform: str) -> frozenset[str]:
    """The words that the reader of a switch OS knows, in lower case: those of every text in its own modules.

    A target that another package installs has none but the common ones, so that nearly all is renamed.
    """
    root = files("mltswitch.targets")
    own = root.joinpath(platform.replace("-", "_"))
    folders = (root, root.joinpath("engine"), *([own] if own.is_dir() else []))
    words = set(_COMMON)
    for folder in folders:
        for entry in folder.iterdir():
            if entry.name.endswith(".py"):
                for text in _texts(entry.read_text(encoding="utf-8")):
                    plain = _NO_ESCAPE.sub(" ", text)
                    words.update(_VOCABLE.findall(plain), _OPTIONAL.findall(plain))
    return frozenset(map(str.casefold, words))


def _texts(source: str) -> Iterable[str]:
    """Every string of a module but its docstrings, which are prose."""
    tree = ast.parse(source)
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return (
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    )


@dataclass(slots=True)
class Redactor:
    """Renames what is not known in the texts of several switches, the same everywhere."""

    names: dict[str, str] = field(default_factory=dict)
    """Word → what it is called now."""
    forced: set[str] = field(default_factory=set)
    """Names and serial numbers of switches, which are renamed whatever they look like."""
    macs: dict[str, str] = field(default_factory=dict)
    """MAC address in lower case without separators → its number, as 12 hexadecimal digits."""
    blocks: dict[IPv4Network, int] = field(default_factory=dict)
    """Block of addresses → the first address of the one that stands for it."""
    sites: dict[int, int] = field(default_factory=dict)
    """First 48 bits of an IPv6 address → number of what stands for them."""
    interfaces: dict[int, int] = field(default_factory=dict)
    """Last 64 bits of an IPv6 address → what stands for them."""

    def reserve(self, texts: Iterable[str]) -> None:
        """Find the blocks of addresses that are wider than half an address, before any is renamed."""
        wide = {
            network
            for text in texts
            for match in _SCANNED.finditer(text)
            if match["ipv4"] and "/" in match["ipv4"]
            for network in _network_of(match["ipv4"])
            if 8 <= network.prefixlen < _HALF and not _is_kept(network.network_address)
        }
        for network in sorted(wide, key=lambda each: (each.prefixlen, each)):
            if not any(network.subnet_of(known) for known in self.blocks):
                self._allocate(network)

    def redacted(self, text: str, known: frozenset[str], kept: Iterable[str] = ()) -> str:
        """The text with everything renamed that is not known.

        Args:
            text: What a switch answered.
            known: Words that stay, in lower case: see `known_words`.
            kept: Texts of this switch that stay as they are, such as its model.
        """
        whole = "|".join(re.escape(each) for each in kept if len(each) >= _SHORTEST_KEPT)
        stays = re.compile(f"({whole})" if whole else "(?!)()")
        lines = (self._line(line, known, stays) for line in text.splitlines(keepends=True))
        return _NOT_ASCII.sub("?", "".join(lines))

    def _line(self, line: str, known: frozenset[str], stays: re.Pattern[str]) -> str:
        secret = _SECRET.search(line)
        start, end = (len(line), len(line)) if secret is None else secret.span()
        head = "".join(
            part if number % 2 else _SCANNED.sub(lambda match: self._renamed(match, known), part)
            for number, part in enumerate(stays.split(line[:start]))
        )
        tail = _SCANNED.sub(lambda match: self._renamed(match, frozenset(), is_secret=True), line[end:])
        return head + line[start:end] + tail

    def _renamed(self, match: re.Match[str], known: frozenset[str], *, is_secret: bool = False) -> str:
        if (address := self._address(match)) is not None:
            return address
        word = match[0]
        if match["escape"]:  # of JSON, which would be another one with the letters behind it renamed
            return word
        if is_secret or word in self.forced:
            return self._name(word)
        numbered = _NUMBERED.fullmatch(word)
        if _is_plain(word) or word.casefold() in known or (numbered and numbered[1].casefold() in known):
            return word
        if (parts := re.split(r"([./+:])", word)) != [word]:
            return "".join(self._part(part, known) for part in parts)
        return self._name(word)

    def _address(self, match: re.Match[str]) -> str | None:
        """None for what is no address."""
        if match["mac"]:
            return self._mac(match["mac"])
        return self._ipv6(match["ipv6"]) if match["ipv6"] else match["ipv4"] and self._ipv4(match["ipv4"])

    def _part(self, part: str, known: frozenset[str]) -> str:
        is_known = (
            part.casefold() in known
            or part in "./+:"
            or (_NUMBER.fullmatch(part) and len(part) <= _LONGEST_NUMBER)
        )
        return part if is_known else self._name(part)

    def _name(self, word: str) -> str:
        return self.names.setdefault(word, f"x{len(self.names) + 1}")

    def _mac(self, text: str) -> str:
        plain = re.sub(r"[^0-9A-Fa-f]", "", text).lower()
        if plain in {"0" * 12, "f" * 12}:
            return text
        new = iter(self.macs.setdefault(plain, f"02{len(self.macs) + 1:010x}"))
        return "".join(next(new) if letter.isalnum() else letter for letter in text)

    def _ipv4(self, text: str) -> str | None:
        """None for what is no address."""
        if not (networks := _network_of(text)):
            return None
        host, slash, bits = text.partition("/")
        address = IPv4Address(host)
        if _is_kept(address) or (slash and networks[0].prefixlen < 8):
            return text
        block = next((each for each in self.blocks if address in each), None)
        if block is None:
            block = IPv4Network((int(address) >> _HALF << _HALF, IPV4LENGTH - _HALF))
            self._allocate(block)
        new = self.blocks[block] + int(address) - int(block.network_address)
        return f"{IPv4Address(new)}{slash}{bits}"

    def _allocate(self, block: IPv4Network) -> None:
        """The next free place for a block, over this machine's own one; behind the last they begin again."""
        size = block.num_addresses
        end = max((first + each.num_addresses for each, first in self.blocks.items()), default=_TEN)
        first = -(-end // size) * size
        if first >> 24 == _LOOPBACK >> 24:
            first = _LOOPBACK + (1 << 24)
        self.blocks[block] = first if first + size <= _MULTICAST else _TEN

    def _ipv6(self, text: str) -> str | None:
        """None for what is no address, a time of the day for instance."""
        host, slash, bits = text.partition("/")
        try:
            value, length = int(IPv6Address(host)), int(bits or 128)
            ip_network(text, strict=False)
        except ValueError:
            return None
        if value >> 64 == 0 or value >> 120 == 0xFF:
            return text if value <= 1 or value >> 120 == 0xFF else "::2"
        site, subnet, interface = value >> 80, value >> 64 & 0xFFFF, value & (1 << 64) - 1
        number = self.sites.setdefault(site, len(self.sites) + 1)
        if interface:
            interface = self.interfaces.setdefault(interface, len(self.interfaces) + 1)
        new = _DOCUMENTATION | number << 80 | subnet << 64 | interface
        if length < 128:
            new = new >> (128 - length) << (128 - length)
        return f"{IPv6Address(new)}{slash}{bits}"


def _is_plain(word: str) -> bool:
    """Whether it is a number, a measure, a port or an object of mltswitch's, whatever the switch OS."""
    if _NUMBER.fullmatch(word):
        digits = word.lstrip("-0")
        return len(digits) <= _LONGEST_NUMBER or digits.endswith("000")
    return any(pattern.fullmatch(word) for pattern in (_PORT, _OURS, _MEASURE, _RANGE))


def _network_of(text: str) -> tuple[IPv4Network, ...]:
    """The network of an address, or none for what is no address."""
    try:
        return (IPv4Network(text, strict=False),)
    except ValueError:
        return ()


def _is_kept(address: IPv4Address) -> bool:
    return any(address in block for block in _KEPT_BLOCKS)
