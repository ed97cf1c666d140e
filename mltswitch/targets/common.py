"""Helpers that several targets share: for lines of files, answers of devices, and routes."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Network
from shlex import quote
from typing import Any, Final, TypeVar

from mltswitch.errors import DeviceError
from mltswitch.plan import Plan, Switch
from mltswitch.targets.base import Claim, FileError, FittedState, LineError, Lock, Step
from mltswitch.targets.state import RouteState

_Value = TypeVar("_Value")
_Item = TypeVar("_Item")
UNKNOWN: Final = "not a line that mltswitch writes"
NO_PORT: Final = re.compile("")
"""The port of a route on a device whose routes name the next hop alone."""
NO_NEXT_HOP: Final = IPv4Address(0)
"""The next hop of a route that leads to no neighbour, such as one that drops."""
NULL_INTERFACE: Final = "Null0"
"""The interface of routes that discard, in lower case: OSes write it in either."""
_SPECTRUM_BOX: Final = re.compile(r"M?SN([2-5][0-9]{3})(?![0-9])")
_JSON_BEGIN: Final = re.compile(r"[\[{](?=\s*[\[{\"\]}])")
"""Not what stands in a prompt, such as `[standalone: master]`."""
_QUOTED_CHARACTERS: Final = 60
NOT_SAVED: Final = "what runs is not saved: a reboot brings something else; a push saves it"
"""The note that what runs is not saved, for any OS that can tell."""
SAVED_UNREAD: Final = "what it starts with cannot be read, so nobody can tell whether what runs is saved"
POLL_SECONDS: Final = 10.0
"""Seconds between SONiC's copies of its chip's counters, unless configured; assumed for other OSes, too."""
_MOST_COUNTER_DIGITS: Final = 20
"""Digits of the largest number that a counter of 64 bits holds."""
Key = tuple[tuple[str, ...], str]
"""A line with the modes in which it stands, outermost first."""


def indices_of(values: Iterable[object], value: object) -> tuple[int, ...]:
    """The indices at which a value stands, such as the DSCPs that lead to a priority."""
    return tuple(index for index, each in enumerate(values) if each == value)


def numbers_in(text: str, count: int) -> range:
    """The numbers that `8` or `8-10` names, all below `count`; raises ValueError for anything else.

    The bound is checked before the range is expanded: a device may answer `0-20000000`.
    """
    first, dash, last = text.partition("-")
    numbers = range(int(first), int(last if dash else first) + 1)
    if not (text.isascii() and (first + last).isdecimal() and numbers.start < numbers.stop <= count):
        raise ValueError(f"{text!r} is no range of numbers below {count}")
    return numbers


def each_line(text: str, parse: Callable[[str], _Item | None]) -> Iterator[tuple[int, _Item]]:
    """Line number and parsed line, of each line for which `parse` returns something; raises FileError after
    the last line for all its ValueErrors."""
    errors: list[LineError] = []
    # Not splitlines: what is pasted into a command line ends a line at a line feed only.
    for number, line in enumerate(text.split("\n"), start=1):
        try:
            meaning = parse(line)
        except ValueError as error:
            errors.append(LineError(number, line, str(error)))
            continue
        if meaning is not None:
            yield number, meaning
    if errors:
        raise FileError(errors)


def check_lines(found: Iterable[tuple[int, Key]], rendered: Iterable[tuple[int, Key]]) -> None:
    """Raise FileError for each line found that the state does not render, and each one that is missing."""
    needed = Counter(key for _, key in rendered)
    errors: list[LineError] = []
    for number, key in found:
        if not needed[key]:
            errors.append(LineError(number, key[1], "does not fit the other lines"))
        needed[key] -= 1
    for modes, text in sorted(+needed):
        errors.append(LineError(0, "", f"lacks the line {' / '.join((*modes, text))!r}"))
    if errors:
        raise FileError(errors)


@contextmanager
def known_form(query: str, hint: str = "") -> Iterator[None]:
    """Turn errors of the code that reads an answer into DeviceError: the answer has an unknown form."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DeviceError(
            f"the answer to {query!r} has another form than known ({type(error).__name__}: {error})",
            hint=hint,
        ) from None


def known_word(word: object, meanings: Mapping[str, _Value], subject: str, query: str) -> _Value:
    """The meaning of a device's word by a closed table; raises DeviceError for every other word.

    A word that nobody has read is never taken for a harmless one: a newer release may say by it what an older
    one said by another.
    """
    if isinstance(word, str) and word in meanings:
        return meanings[word]
    raise DeviceError(
        f"{subject} is {repr(word)[:120]}, which mltswitch does not know",
        where=query,
        expected=f"one of {', '.join(each or 'nothing' for each in meanings)}",
        hint="a release that nobody has read may say so: look at the device, and report the answer",
    )


SWITCHED: Final = dict.fromkeys(("enabled", "enable", "on", "yes"), True) | dict.fromkeys(
    ("disabled", "disable", "off", "no"), False
)
"""Word in lower case → whether it says that something is on, for all spellings that releases use."""


def is_on(word: object, subject: str, query: str, others: Mapping[str, bool] | None = None) -> bool:
    """Whether a word says that something is on; raises DeviceError for an unknown word."""
    return known_word(str(word).strip().lower(), SWITCHED | dict(others or {}), subject, query)


def json_in(answer: str, *, may_contradict: bool = False) -> Any:
    """The one JSON document in an answer; some command lines print text before and behind it.

    Raises ValueError where there is none, where it is cut short or another follows, and where a key stands
    twice with different values, unless `may_contradict`: then such a key is None.
    """
    begin = _JSON_BEGIN.search(answer)
    if begin is None:
        raise ValueError(f"no JSON, but {answer.strip()[:_QUOTED_CHARACTERS]!r}")

    def joined(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        for name, value in pairs if len(found) < len(pairs) else ():
            if found[name] != value:
                if not may_contradict:
                    raise ValueError(f"{name!r} stands twice, as {value!r} and as {found[name]!r}")
                found[name] = None
        return found

    try:
        document, end = json.JSONDecoder(object_pairs_hook=joined).raw_decode(answer, begin.start())
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None
    except json.JSONDecodeError as error:
        rest = answer[max(error.pos - _QUOTED_CHARACTERS // 2, 0) :][:_QUOTED_CHARACTERS]
        raise ValueError(f"no JSON, or cut short, at {rest!r}") from None
    if _JSON_BEGIN.search(answer, end) is not None:
        raise ValueError(f"more than one document: {answer[end:].strip()[:_QUOTED_CHARACTERS]!r}")
    return document


def count_in(text: object) -> int | None:
    """The number in a text with thousands commas; None for a dash, N/A or an empty text.

    Raises ValueError for what no counter of 64 bits holds.
    """
    digits = str(text).replace(",", "")
    if len(digits) > _MOST_COUNTER_DIGITS:
        raise ValueError(f"{digits[:_MOST_COUNTER_DIGITS]}... is no counter")
    return int(digits) if digits.isdecimal() else None


def static_route(line: str, where: str, prefix: str, target: str, others: str) -> RouteState:
    """A static route of a running configuration, which names its next hop and no port.

    What stands behind the next hop, such as a distance, is the port; a word in the place of the next hop is
    the port of the next hop 0.0.0.0, unless it is null0 alone, which discards. Raises DeviceError.
    """
    try:
        network = IPv4Network(prefix, strict=False)
    except ValueError as error:
        raise DeviceError(f"cannot read {line!r}: {error}", where=where) from None
    words = others.split()
    try:
        next_hop = IPv4Address(target)
    except ValueError:
        next_hop, words = NO_NEXT_HOP, [target, *words]
    return as_discarding(RouteState(network, next_hop, " ".join(words)), NULL_INTERFACE)


def as_discarding(route: RouteState, word: str) -> RouteState:
    """The route as one that discards, if it has no next hop and its port is that word; else unchanged."""
    is_discarding = route.next_hop == NO_NEXT_HOP and route.port.lower() == word.lower()
    return route._replace(port="") if is_discarding else route


def spectrum_hardware(model: str) -> tuple[str, ...]:
    """The names of an NVIDIA switch's hardware in its model text: MSN2700-CS2F, MSN2700, SN3700C.

    Onyx prints the part number, Cumulus Linux the product name (NVIDIA's manuals, `show inventory`, NVUE
    reference). Letters behind the number tell ports, cooling and rails of one box.
    """
    match = _SPECTRUM_BOX.match(model)
    return () if match is None else (f"sn{match[1]}",)


def unknown_box(model: str, planned: str) -> str:
    """The note that the hardware of a box is not known here."""
    box = model or "this box"
    return f"whether {box} is the hardware {planned}, for which the plan was made, is not known"


def without_route_ports(fitted: FittedState, _plan: Plan, _switch: Switch) -> FittedState:
    """The state without ports in its routes, for a device whose routes name the next hop alone."""
    routes = tuple(RouteState(route.prefix, route.next_hop, "") for route in fitted.state.routes)
    return replace(fitted, state=replace(fitted.state, routes=routes))


LINK: Final = "/run/lock/mltswitch"
_SIGN: Final = "mltswitch"
_SINCE_DIGITS: Final = 11
"""Most digits of the time in a mark, seconds since 1970: until the year 5138."""


def shell_lock(link: str = LINK, *, sudo: str = "") -> Lock:
    """A lock on a device with a POSIX shell: a symbolic link whose target says who has it.

    The link is made in one step or not at all, whatever else is going on, and it says who made it from the
    first moment on. It lies where every user of the device may make files and nobody may remove those of
    others (Debian's /run/lock), and a reboot takes it away. Its place may be an expression of the shell;
    `sudo` begins what removes it.
    """
    query = f"date +%s; readlink {link} || true"

    def marked(answer: str) -> tuple[int, dict[str, Claim]]:
        with known_form(query, hint=f"where nobody works on the device, enter there: {sudo}rm {link}"):
            now, *links = answer.splitlines()
            claims = {}
            for text in links:
                sign, owner, since, who = text.split(" ", 3)
                if sign != _SIGN or not since.isdecimal() or len(since) > _SINCE_DIGITS:
                    raise ValueError(text)
                claims[text] = Claim(owner, who, int(since))
            return int(now), claims

    def read(answer: str) -> tuple[int, tuple[Claim, ...]]:
        now, claims = marked(answer)
        return now, tuple(claims.values())

    def take(claim: Claim, _answer: str) -> tuple[Step, ...]:
        text = f"{_SIGN} {claim.owner} {claim.since} {claim.who}"
        return (Step(f"ln -sT {quote(text)} {link}"),)

    def release(answer: str, owner: str) -> tuple[Step, ...]:
        texts = (text for text, claim in marked(answer)[1].items() if claim.owner == owner)
        # By now it may be another's, who has taken this one away.
        return tuple(
            Step(f"readlink {link} | grep -vqxF {quote(text)} || {sudo}rm -f {link}") for text in texts
        )

    return Lock(query, read, take, release)
