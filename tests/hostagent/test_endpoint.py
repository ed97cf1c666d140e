"""Addresses, ports and names of hosts: what is understood, what is looked up, and which address is taken."""

import socket
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import Endpoint, host_name_problem, look_up, parse_endpoint, parse_place
from mltswitch.wire import AGENT_PORT

NOWHERE = "host3.invalid"
"""No resolver has a name below it (RFC 6761)."""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("10.0.0.1", ("10.0.0.1", AGENT_PORT)),
        ("10.0.0.1:7", ("10.0.0.1", 7)),
        ("fd00::1", ("fd00::1", AGENT_PORT)),
        ("[fd00::1]", ("fd00::1", AGENT_PORT)),
        ("[fd00::1]:7", ("fd00::1", 7)),
        ("[fe80::1%eth0.7]:7", ("fe80::1%eth0.7", 7)),
        ("host3", ("host3", AGENT_PORT)),
        ("host_3.rack-1.example.:7", ("host_3.rack-1.example.", 7)),
        ("3com.example", ("3com.example", AGENT_PORT)),
    ],
)
def test_places(text: str, place: tuple[str, int]) -> None:
    assert parse_place(text) == place
    if place[0][0] in "1f":
        assert parse_endpoint(text) == Endpoint(*place)
    else:
        with pytest.raises(ValueError, match="names are looked up for peers alone"):
            parse_endpoint(text)


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.300",
        "10.1",
        "0x7f000001",
        "host 3",
        "-host3",
        "a..b",
        "a." * 127,
        "hôte",
        "",
        "[host3]:7",
        "[::1]7",
        "::%]",
        "::1%",
        "fe80::1%eth0 ",
        "fe80::1%a%b",
    ],
)
def test_what_is_no_place(text: str) -> None:
    with pytest.raises(ValueError, match="is neither an IP address nor a host name"):
        parse_place(text)


@pytest.mark.parametrize("text", ["host3:", "host3:70000", "10.0.0.1:x", "[::1]:", "[::1]:-1", "10.0.0.1:٣"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(ValueError, match="has no port of 0 to 65535"):
        parse_place(text)


@settings(max_examples=200)
@given(st.text(alphabet="0129abxf:.[]%-_ ", max_size=24))
def test_a_place_is_an_endpoint_or_a_name_or_none(text: str) -> None:
    try:
        host, port = parse_place(text)
    except ValueError:
        with pytest.raises(ValueError):  # noqa: PT011  (either line)
            parse_endpoint(text)
        return
    try:
        found = parse_endpoint(text)
    except ValueError:
        with pytest.raises(OSError):  # noqa: PT011  (inet_aton has no text)
            socket.inet_aton(host.removesuffix("."))
        return
    assert found == Endpoint(host, port) == parse_endpoint(str(found))


def test_an_ipv4_address_in_ipv6_clothes() -> None:
    assert Endpoint("::ffff:127.0.0.1", 7).ip.is_loopback
    assert str(Endpoint("fd00::1", 7)) == "[fd00::1]:7"


@pytest.mark.parametrize("name", ["host1.eth0", "a_b-C9", "1", "a" * 63])
def test_host_names(name: str) -> None:
    assert not host_name_problem(name)
    for wrong in (f"{name} ", f"-{name}", f"{name}..a", f"{name}.", f"../{name}", f"{name}\n", f"é{name}"):
        assert host_name_problem(wrong)


@pytest.mark.parametrize("name", ["", "a" * 64, "10.0.0.1", "::1"])
def test_what_is_no_host_name(name: str) -> None:
    assert host_name_problem(name)


def test_localhost_is_looked_up() -> None:
    assert look_up("localhost:7", where="test", like="127.0.0.1") == Endpoint("127.0.0.1", 7)


@pytest.mark.parametrize(("like", "address"), [("10.1.0.1", "10.0.0.7"), ("fd00::1", "fd00::7")])
@pytest.mark.parametrize("has_both", [True, False])
def test_our_own_version_of_ip_comes_first(
    monkeypatch: pytest.MonkeyPatch, like: str, address: str, has_both: bool
) -> None:
    both: list[tuple[Any, ...]] = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::7", 7, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 7)),
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: both if has_both else both[:1])
    assert look_up("x.example:7", where="test", like=like) == Endpoint(address if has_both else "fd00::7", 7)


@pytest.mark.parametrize("text", [NOWHERE, "a" * 63 + ".invalid", "a b"])
def test_a_name_without_an_address_is_one_line(text: str) -> None:
    with pytest.raises(UserInputError, match=r"^agent\.yaml: peers\.host3: '") as problem:
        look_up(text, where="agent.yaml: peers.host3")
    assert "\n" not in str(problem.value)
