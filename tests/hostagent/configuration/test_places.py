"""Peers by address and by name: what is understood, what is looked up, when, and which address is taken."""

import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.configuration.places import PeerPlaces, Place, look_up, parse_endpoint, parse_place
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.wire import AGENT_PORT

KNOWN = Endpoint("10.0.0.9", 9)
NOWHERE = "host3.invalid"
"""No resolver has a name below it (RFC 6761)."""


@pytest.fixture
def lookups(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every name is `two.example`, with an address of each version; gives what was asked for."""
    asked: list[str] = []

    def both(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7", port, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    return asked


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("10.0.0.1", Place("10.0.0.1", AGENT_PORT)),
        ("[fd00::1]:7", Place("fd00::1", 7)),
        ("host3", Place("host3", AGENT_PORT)),
        ("host_3.rack-1.example.:7", Place("host_3.rack-1.example.", 7)),
        ("3com.example", Place("3com.example", AGENT_PORT)),
    ],
)
def test_places(text: str, place: Place) -> None:
    assert parse_place(text) == place
    assert place.is_name == (place.host[0] not in "1f")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("10.0.0.300", "is neither an IP address nor a host name"),
        ("10.1", "is neither an IP address nor a host name"),
        ("0x7f000001", "is neither an IP address nor a host name"),
        ("host 3", "is neither an IP address nor a host name"),
        ("-host3", "is neither an IP address nor a host name"),
        ("a..b", "is neither an IP address nor a host name"),
        ("a." * 127, "is neither an IP address nor a host name"),
        ("hôte", "is neither an IP address nor a host name"),
        ("", "is neither an IP address nor a host name"),
        ("host3:", "has no port of 0 to 65535"),
        ("host3:70000", "has no port of 0 to 65535"),
        ("[host3]:7", "is no IP address"),
        ("[fd00::1]7", "is not understood"),
    ],
)
def test_what_is_no_place(text: str, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        parse_place(text)


@settings(max_examples=100)
@given(st.text(alphabet="0129abxf:.[]%-_ ", max_size=24))
def test_a_place_is_an_endpoint_or_a_name_or_none(text: str) -> None:
    try:
        found = parse_place(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  (either line)
            parse_endpoint(text)
        return
    if found.is_name:
        with pytest.raises(ValueError, match="is no IP address"):
            parse_endpoint(text)
        with pytest.raises(OSError):  # noqa: PT011  (inet_aton has no text)
            socket.inet_aton(found.host.removesuffix("."))
    else:
        assert parse_endpoint(text) == Endpoint(found.host, found.port)


def test_localhost_is_looked_up() -> None:
    assert look_up(parse_place("localhost:7"), where="test", like=["127.0.0.1"]) == Endpoint("127.0.0.1", 7)


@pytest.mark.parametrize(
    ("like", "address"),
    [(["10.1.0.1"], "10.0.0.7"), (["fd00::1"], "fd00::7"), ([], "fd00::7"), (["::1", "1.1.1.1"], "fd00::7")],
)
def test_our_own_version_of_ip_comes_first(lookups: list[str], like: list[str], address: str) -> None:
    assert look_up(Place("two.example", 7), where="test", like=like) == Endpoint(address, 7)
    assert lookups == ["two.example"]


def test_the_only_address_is_taken_whatever_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    only = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7", 7, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: only)
    assert look_up(Place("six.example", 7), where="test", like=["10.0.0.1"]) == Endpoint("fd00::7", 7)


def test_a_name_without_an_address_is_one_line() -> None:
    with pytest.raises(UserInputError) as problem:
        look_up(Place(NOWHERE, 7), where="agent.yaml: peers.host3", like=[])
    text = str(problem.value)
    assert text.startswith(f"agent.yaml: peers.host3: '{NOWHERE}' is no IP address, and no name with one (")
    assert "\n" not in text


def test_peers_are_looked_up_when_they_are_asked_for_and_once(lookups: list[str]) -> None:
    named = {"one": Place("one.example", 1), "two": Place("two.example", 2), "three": Place("10.0.0.3", 3)}
    known = {"two": KNOWN, "nine": KNOWN}
    found = PeerPlaces(known, named, place="agent.yaml: peers.{}".format, like=["10.0.0.1"])
    assert list(found) == ["two", "nine", "one", "three"]
    assert len(found) == 4
    assert "one" in found
    assert "four" not in found
    assert found.get("four") is None
    assert (found["nine"], found["three"]) == (KNOWN, Endpoint("10.0.0.3", 3))
    assert lookups == []
    assert found["two"] == found["two"] == Endpoint("10.0.0.7", 2)
    assert lookups == ["two.example"]


def test_a_peer_that_nobody_finds_is_named_by_file_and_field() -> None:
    found = PeerPlaces({}, {"host3": Place(NOWHERE, 1)}, place="agent.yaml: peers.{}".format, like=[])
    with pytest.raises(
        UserInputError, match=r"^agent\.yaml: peers\.host3: 'host3\.invalid' is no IP address"
    ):
        found.get("host3")
