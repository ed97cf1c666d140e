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
also words and numbers that are known, and so are the lines below it that are indented deeper.
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
    r"""
    (?:(?<![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]))
    (?i:
        secrets?|pass\w*|keys?|psk|pin|auth\w*|community|communities|hash(?:ed)?|md5|sha-?\d*|token|private
        |username|user(?![ ]priority)|credentials?|certificate|banner|motd|snmp(?:-server)?
        |bgp(?:_asn)?|asn|(?:remote|local|peer)[_-]as|autonomous-system|rd|rt|target
        |desc(?:ription)?|contact|location|remark|comment|asset|circuit|deployment|site|phone|e?mail
        |rack|room|floor|customer|tenant|owner|hostname|sys-?name|device_neighbor|neighbou?rs?
        |sn|serial(?:[ _-]?(?:number|num|no))?
    )\d*
    (?:(?![A-Za-z0-9])|(?<=[a-z0-9])(?=[A-Z]))
    """,
    re.VERBOSE,
)
"""What follows on the line, and deeper below it, is a secret, or says whose the switch is."""
_RELEASE_LINE: Final = re.compile(r"(?i)version|release|software|firmware|image|build")
"""Only on such a line a text that could be an IPv4 address is taken for the release."""
_MAC: Final = r"""
    (?<![0-9A-Za-z])
    (?:[0-9A-Fa-f]{1,2}(?::[0-9A-Fa-f]{1,2}){5}
       |[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}
       |[0-9A-Fa-f]{4}(?:(?:\.[0-9A-Fa-f]{4}){2}|(?:-[0-9A-Fa-f]{4}){2})
       |(?![1-9]\d{5}0{6})[0-9A-Fa-f]{12})
    (?![0-9A-Za-z]|:[0-9A-Fa-f:]|-[0-9A-Fa-f]{1,4}(?![0-9A-Za-z])|\.[0-9A-Fa-f]{4}(?![0-9A-Za-z]))
"""
"""Twelve digits that end in six zeros are a rate in bit/s."""
_IPV6: Final = r"""
    (?<![0-9A-Za-z])(?=[0-9A-Fa-f]{0,4}:[0-9A-Fa-f]{0,4}:)
    [0-9A-Za-z:]*(?:[0-9A-Za-z]|::)(?:\.\d+){0,3}(?:/\d{1,3}(?!\d))?
"""
"""Also what only begins like an address."""
_IPV4: Final = r"""
    (?<![0-9A-Za-z])(?<![0-9]\.)(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2}(?!\d))?(?![0-9A-Za-z]|\.\d|\.in-addr)
"""
_BEYOND_ASCII: Final = r"\\(?:u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|x[0-9A-Fa-f]{2}|[0-7]{3})|&\#\w{1,8};"
"""A character as JSON, Python, C and XML write it in ASCII."""
_ESCAPED: Final = re.compile(_BEYOND_ASCII, re.VERBOSE)
_SCANNED: Final = re.compile(
    rf"""
    (?P<mac>{_MAC})
    |(?P<ipv6>{_IPV6})
    |(?P<ipv4>{_IPV4})
    |(?P<escape>\\[\\nrtbf])
    |(?P<word>(?:(?!_(?:{_MAC}|{_IPV6}|{_IPV4}))\w|{_BEYOND_ASCII})
        (?:(?:(?![./+_-](?:{_MAC}|{_IPV6}|{_IPV4}))[\w./+-]|{_BEYOND_ASCII})*(?:\w|{_BEYOND_ASCII}))?)
    """,
    re.VERBOSE,
)
"""A word ends before an address that follows it, as in `host-198.51.100.7`."""
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?|0x[0-9A-Fa-f]{1,4}")
_TIME: Final = re.compile(r"\d{1,3}(?::\d{1,2}){2}(?:\.\d+)?")
_MOST_NUMBERS: Final = 2
"""More numbers than these with dots between them may be an address or identify a build."""
_PORT: Final = re.compile(
    r"en(?:o\d{1,4}|s\d{1,4}|p\d{1,4}s\d{1,3})(?:f\d{1,2})?(?:np\d{1,2})?(?:d\d)?|"
    r"(?:Ethernet|Eth|Management|Loopback|Vlan|[Pp]ort-?[Cc]hannel|[Pp]o|[Ll]ag|swp|bond|eth|te|fo|hu|gi|vlan|lo|CPU)"
    r"\d{1,4}(?:s\d{1,2})?(?:/\d{1,3}){0,3}(?:-\d{1,4})?|\d{1,2}(?:/\d{1,3}){1,3}|TC-\d"
)
"""Ports, ranges of them, and traffic classes as Onyx numbers them."""
_OURS: Final = re.compile(
    r"MLT(?:_[A-Z0-9]+)*(?:_Ethernet\d{1,4})?|(?:mlt|mltswitch)(?:-(?:[a-z]{1,12}\d{0,3}(?:s\d{1,2})?|\d{1,4})){1,4}"
    r"|mltswitch-[a-z]{1,12}-[0-9a-f]{8}"
)
"""A lock has more in its name: whose it is, and since when."""
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
    """Names and serial numbers, in lower case, which are renamed whatever they look like: see `force`."""
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

    def force(self, names: Iterable[str]) -> None:
        """Rename these, in capitals or not, also where they are known words or look like numbers."""
        self.forced.update(name.casefold() for name in names if name)

    def redacted(self, text: str, known: frozenset[str], kept: Iterable[str] = ()) -> str:
        """The text with everything renamed that is not known.

        Args:
            text: What a switch answered.
            known: Words that stay, in lower case: see `known_words`.
            kept: Texts of this switch that stay as they are, such as its model.
        """
        stays = [each for each in kept if len(each) >= _SHORTEST_KEPT]
        always, with_release = _any_of(each for each in stays if not _network_of(each)), _any_of(stays)
        lines: list[str] = []
        secret_indent: int | None = None
        for line in text.splitlines(keepends=True):
            body = line.strip()
            indent = len(line.expandtabs()) - len(line.expandtabs().lstrip())
            if body and secret_indent is not None:
                is_below = indent > secret_indent or (indent == secret_indent and body.startswith("- "))
                secret_indent = secret_indent if is_below else None
            if secret_indent is not None:
                lines.append(self._secret(line))
                continue
            key = _SECRET.search(line)
            start = end = len(line)
            if key is not None:
                start, end = key.start(), _end_of_key(line, key, known)
            pattern = with_release if _RELEASE_LINE.search(line) else always
            lines += (self._head(line[:start], known, pattern), line[start:end], self._secret(line[end:]))
            secret_indent = None if key is None else indent
        return _NOT_ASCII.sub("?", "".join(lines))

    def _head(self, text: str, known: frozenset[str], stays: re.Pattern[str]) -> str:
        """What stands before any secret of a line, redacted."""
        return "".join(
            part if number % 2 else _SCANNED.sub(lambda match: self._renamed(match, known), part)
            for number, part in enumerate(stays.split(text))
        )

    def _secret(self, text: str) -> str:
        return _SCANNED.sub(lambda match: self._renamed(match, frozenset(), is_secret=True), text)

    def _renamed(self, match: re.Match[str], known: frozenset[str], *, is_secret: bool = False) -> str:
        word = match[0]
        if is_secret and word.isalnum():  # a hash may be of twelve hexadecimal digits
            return self._name(word)
        if (address := self._address(match)) is not None:
            return address
        if match["escape"]:  # of JSON, which would be another one with the letters behind it renamed
            return word
        if is_secret or word.casefold() in self.forced or _is_hidden(word):
            return self._name(word)
        if _is_plain(word) or word.casefold() in known:
            return word
        numbers_stay = not match["ipv6"]
        parts = re.split(r"([./+:])", word)
        return "".join(self._part(part, known, numbers_stay=numbers_stay) for part in parts)

    def _address(self, match: re.Match[str]) -> str | None:
        """None for what is no address."""
        if match["mac"]:
            return self._mac(match["mac"])
        return self._ipv6(match["ipv6"]) if match["ipv6"] else match["ipv4"] and self._ipv4(match["ipv4"])

    def _part(self, part: str, known: frozenset[str], *, numbers_stay: bool) -> str:
        is_number = _NUMBER.fullmatch(part) and len(part) <= _LONGEST_NUMBER
        is_known = part in {"", *"./+:"} or part.casefold() in known or (numbers_stay and is_number)
        return part if is_known and part.casefold() not in self.forced else self._name(part)

    def _name(self, word: str) -> str:
        return self.names.setdefault(word, f"x{len(self.names) + 1}")

    def _mac(self, text: str) -> str:
        groups = re.split("([:.-])", text)
        width = 12 // (len(groups) // 2 + 1)
        plain = "".join(group.zfill(width) for group in groups[::2]).lower()
        if plain in {"0" * 12, "f" * 12}:
            return text
        new = self.macs.setdefault(plain, f"02{len(self.macs) + 1:010x}")
        join = groups[1] if len(groups) > 1 else ""
        return join.join(new[start : start + width] for start in range(0, 12, width))

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


def _end_of_key(line: str, key: re.Match[str], known: frozenset[str]) -> int:
    """Where a key such as `SNMP_COMMUNITY` ends, of which the match has found a part."""
    rest = re.compile(r"(?:[_-][A-Za-z]+)*(?![\w-])").match(line, key.end())
    parts = re.findall("[A-Za-z]+", rest[0]) if rest else []
    if rest and all(part.casefold() in known or _SECRET.fullmatch(part) for part in parts):
        return rest.end()
    return key.end()


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """These texts where they are words of their own, and no part of a name or of an address."""
    whole = "|".join(map(re.escape, texts))
    before = r"(?:(?<![\w/-])(?<!\w\.)|(?<=\bSONiC\.)|(?<=\bEOS-))"
    return re.compile(rf"{before}({whole})(?![\w/-]|[.:]\w)" if whole else "(?!)()")


def _is_plain(word: str) -> bool:
    """Whether it is a number, a measure, a time, a port or our own object, whatever the switch OS."""
    if _NUMBER.fullmatch(word):
        digits = word.lstrip("-0")
        return len(digits) <= _LONGEST_NUMBER or digits.endswith("000")
    return any(pattern.fullmatch(word) for pattern in (_PORT, _OURS, _MEASURE, _RANGE, _TIME))


def is_number_or_port(word: str) -> bool:
    """Whether a name says nothing of its site, and renaming it would change what the switch told."""
    return word.isdecimal() or _PORT.fullmatch(word) is not None


def _is_hidden(word: str) -> bool:
    """Whether it is text in another spelling, or an address that no pattern of addresses takes."""
    numbers = sum(part.isdecimal() for part in word.split("."))
    return bool(_ESCAPED.search(word)) or numbers > _MOST_NUMBERS or "in-addr" in word


def _network_of(text: str) -> tuple[IPv4Network, ...]:
    """The network of an address, or none for what is no address."""
    try:
        return (IPv4Network(text, strict=False),)
    except ValueError:
        return ()


def _is_kept(address: IPv4Address) -> bool:
    return any(address in block for block in _KEPT_BLOCKS)
