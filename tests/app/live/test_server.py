"""The live page's server over real sockets: who may read, who is slow, who goes, and its end."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from mltswitch.app.live import server
from mltswitch.app.live.server import LivePage, serve_page
from mltswitch.errors import MachineError
from mltswitch.hostagent.endpoint import Endpoint
from tests.hostagent.background import eventually

FABRIC = {"name": "rack 7"}
PATIENCE_SECONDS = 60.0


def connect(page: LivePage, request: str) -> socket.socket:
    port = int(re.findall(r":(\d+)/", page.url)[0])
    connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS)
    connection.sendall(request.encode("latin-1"))
    return connection


def asked(page: LivePage, path: str = "/", host: str = "localhost", method: str = "GET") -> str:
    """The whole answer."""
    with closing(connect(page, f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")) as connection:
        return b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()


def status(answer: str) -> int:
    return int(answer.split(" ", 2)[1])


def events(connection: socket.socket) -> Iterator[tuple[str, Any]]:
    """Names and documents of a stream, until it ends."""
    with connection.makefile("r", encoding="utf-8", newline="\n") as lines:
        name = ""
        for line in lines:
            if line.startswith("event: "):
                name = line[7:-1]
            if line.startswith("data: "):
                yield name, json.loads(line[6:])


@pytest.fixture
def page() -> Iterator[LivePage]:
    with serve_page(Endpoint("127.0.0.1", 0), FABRIC) as served:
        yield served


@pytest.fixture
def open_page() -> Iterator[LivePage]:
    """Beyond loopback: at all addresses of this machine."""
    with serve_page(Endpoint("0.0.0.0", 0), FABRIC) as served:  # noqa: S104  (that is the point)
        yield served


def stream(page: LivePage, path: str = "/events") -> socket.socket:
    return connect(page, f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")


def test_the_page_runs_nothing_but_its_own(page: LivePage) -> None:
    head, _, body = asked(page).partition("\r\n\r\n")
    assert status(head) == 200
    policy = re.findall("(?m)^Content-Security-Policy: (.*?)\r?$", head)[0]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert all(
        re.fullmatch(r"'sha256-[A-Za-z0-9+/=]{44}'", rules[f"{kind}-src"]) for kind in ("style", "script")
    )
    assert "unsafe" not in policy
    assert "Referrer-Policy: no-referrer" in head
    assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?!data:)[a-z]*:?//""", body)
    assert not re.findall("innerHTML|outerHTML|insertAdjacentHTML|document.write| style=| on[a-z]+=", body)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8484", "[::1]:8484", "10.0.0.1"])
def test_an_address_or_localhost_may_be_asked(page: LivePage, host: str) -> None:
    assert status(asked(page, host=host)) == 200


@pytest.mark.parametrize(
    "host", ["rebound.example", "127.0.0.1.example:8484", "localhost.example", "", "a\r\nHost: localhost"]
)
@pytest.mark.parametrize("path", ["/", "/events"])
def test_a_name_of_somebody_else_learns_nothing(page: LivePage, host: str, path: str) -> None:
    answer = asked(page, path, host)
    assert status(answer) == 421
    assert "rack 7" not in answer


@pytest.mark.parametrize(
    ("path", "method", "code"),
    [("/else", "GET", 404), ("/events/x", "GET", 404), ("/", "POST", 405), ("/?x=1", "GET", 200)],
)
def test_what_else_is_asked(page: LivePage, path: str, method: str, code: int) -> None:
    assert status(asked(page, path, method=method)) == code


@pytest.mark.parametrize(
    ("request_text", "code"),
    [("nonsense\r\n\r\n", 400), ("GET / HTTP/1.1\r\n\r\n", 421)],
)
def test_what_is_no_request(page: LivePage, request_text: str, code: int) -> None:
    with closing(connect(page, request_text)) as connection:
        assert status(connection.recv(4096).decode()) == code


def test_beyond_loopback_the_address_holds_a_token(open_page: LivePage) -> None:
    path = "/" + open_page.url.split("/", 3)[3]
    assert re.fullmatch("/[A-Za-z0-9_-]{32}/", path)
    assert status(asked(open_page, path, host="jump1.example")) == 200
    with closing(stream(open_page, f"{path}events")) as connection:
        assert next(events(connection)) == ("fabric", FABRIC)
    wrong = path.translate(str.maketrans("Aa", "aA")) if re.search("[Aa]", path) else path[::-1]
    for other in ("/", "/events", wrong, f"{wrong}events", path[:-2] + "/", f"/{chr(233)}/", "//"):
        answer = asked(open_page, other)
        assert status(answer) == 403, other
        assert "rack 7" not in answer
    with serve_page(Endpoint("0.0.0.0", 0), FABRIC) as another:  # noqa: S104  (that is the point)
        assert another.url.split("/")[3] != path.strip("/")


def test_two_readers_see_the_same(page: LivePage) -> None:
    with closing(stream(page)) as one, closing(stream(page)) as other:
        of_one, of_other = events(one), events(other)
        assert next(of_one) == next(of_other) == ("fabric", FABRIC)
        for number in range(3):
            page.publish({"number": number})
            assert next(of_one) == next(of_other) == ("reading", {"number": number})
        with closing(stream(page)) as late:
            assert [next(of_late) for of_late in [events(late)] * 2] == [
                ("fabric", FABRIC),
                ("reading", {"number": 2}),
            ]


def has_none(page: LivePage, state: dict[str, Any]) -> bool:
    """Whether all readers have gone, of whom a write may be the first to tell."""
    page.publish(state)
    return page.readers == 0


def test_a_slow_reader_misses_states_and_holds_up_nobody(
    page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 600.0)  # this machine may be slow, too
    states = 60
    filler = "x" * 500_000  # more than the kernel keeps for a reader who takes nothing
    with closing(stream(page)) as slow, closing(stream(page)) as quick:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        of_quick = events(quick)
        assert next(of_quick)[0] == "fabric"
        for number in range(states):
            page.publish({"number": number, "filler": filler})
            assert next(of_quick)[1]["number"] == number
        seen: list[int] = []
        for name, document in events(slow):
            if name == "reading":
                seen.append(document["number"])
                if seen[-1] == states - 1:
                    break
    assert seen == sorted(seen)
    assert len(seen) < states  # nothing was kept for it but the newest


def test_who_takes_nothing_is_hung_up_on(page: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 0.2)
    with closing(stream(page)) as slow:
        slow.recv(10)
        eventually(lambda: page.readers == 1)
        eventually(lambda: has_none(page, {"filler": "x" * 500_000}))


def test_who_has_gone_is_noticed_and_who_asks_nothing_is_hung_up_on(
    page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SILENCE_SECONDS", 0.05)
    monkeypatch.setattr(server, "REQUEST_SECONDS", 0.2)
    stream(page).close()
    eventually(lambda: page.readers == 0)
    with closing(connect(page, "GET / HTTP/1.1\r\nX: ")) as connection:
        assert connection.recv(1) == b""


def test_who_asks_without_end_is_hung_up_on(page: LivePage) -> None:
    with (
        closing(connect(page, "GET / HTTP/1.1\r\nX: ")) as connection,
        pytest.raises((ConnectionResetError, BrokenPipeError)),
    ):
        connection.sendall(b"x" * 100_000_000)
    assert status(asked(page)) == 200


def test_beyond_a_number_of_readers_more_are_refused(page: LivePage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_READERS", 2)
    with closing(stream(page)) as one, closing(stream(page)) as other:
        assert [next(events(each))[0] for each in (one, other)] == ["fabric", "fabric"]
        assert status(asked(page, "/events")) == 503
        assert status(asked(page)) == 200
    eventually(lambda: has_none(page, {}))
    with closing(stream(page)) as another:
        assert next(events(another))[0] == "fabric"


def test_beyond_a_number_of_connections_more_are_hung_up_on(
    page: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    with closing(stream(page)) as one:
        assert next(events(one))[0] == "fabric"
        with closing(connect(page, "")) as another:
            assert another.recv(1) == b""


def test_its_end_waits_for_no_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_SECONDS", 3600.0)
    with serve_page(Endpoint("127.0.0.1", 0), FABRIC) as page:
        connections = [stream(page) for _ in range(3)]
        streams = [events(each) for each in connections]
        assert [next(each)[0] for each in streams] == ["fabric"] * 3
        stuck = stream(page)  # takes nothing of this
        page.publish({"filler": "x" * 20_000_000})
        assert [next(each)[0] for each in streams] == ["reading"] * 3
    assert not [each for each in threading.enumerate() if each.name == "live page"]
    for each, connection in zip(streams, connections, strict=True):
        with pytest.raises((StopIteration, ConnectionResetError)):
            next(each)
        connection.close()
    stuck.close()


def test_a_taken_port_is_one_line(page: LivePage) -> None:
    port = int(re.findall(r":(\d+)/", page.url)[0])
    with (
        pytest.raises(
            MachineError, match=rf"page 127.0.0.1:{port}: cannot listen there: Address already in use"
        ),
        serve_page(Endpoint("127.0.0.1", port), FABRIC),
    ):
        pass
