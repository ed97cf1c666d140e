"""docs/control-protocol.md: its tables are the messages' layouts, and its examples are what agents say."""

import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from mltswitch.hostagent.agent import DEFAULT_DEADLINE_SECONDS
from mltswitch.hostagent.announced import (
    ANNOUNCEMENT_BYTES,
    ANNOUNCEMENT_TENSOR,
    FIRST_ROUND,
    MAXIMUM_DIMENSIONS,
    MAXIMUM_NUMBER,
    MAXIMUM_ROUNDS,
    Announcement,
)
from mltswitch.hostagent.control import channel, listener, sockets
from mltswitch.hostagent.tcp.settings import LEAST_CHUNK_BYTES
from mltswitch.hostagent.tensor.layout import MAXIMUM_ELEMENTS, MAXIMUM_PACKETS
from mltswitch.hostagent.transport import messages, sending
from mltswitch.hostagent.transport.exchange import MOST_NUDGES, MOST_UNSAID_BYTES
from mltswitch.hostagent.transport.hello import (
    PROTOCOL_VERSIONS,
    LocalEnd,
    PathAddress,
    PeerHello,
    Secrets,
    decode_hello,
    encode_hello,
)
from mltswitch.hostagent.transport.interfaces import Direction, TransferKey
from mltswitch.hostagent.transport.messages import (
    Bitmap,
    Cancel,
    Goodbye,
    Hello,
    Message,
    MessageKind,
    MessageReader,
    Ping,
    Pong,
    Probe,
    Ready,
    Reason,
    Stop,
    Stopped,
    encode_message,
)
from mltswitch.hostagent.transport.settings import ConnectionSettings
from mltswitch.wire import AGENT_HEADER_BYTES, AGENT_PORT, AUTHENTICATION_TAG_BYTES

PAGE = (Path(__file__).parents[3] / "docs" / "control-protocol.md").read_text(encoding="utf-8")
SETTINGS = ConnectionSettings()
MILLISECOND = 1_000_000
SECOND = 1_000_000_000
FORMATS = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "float64": "d"}
BEHIND_THE_LAYOUT = {"uint16 …", "bytes", "text"}
TYPES: dict[MessageKind, Any] = {
    entry.kind: entry for entry in (Hello, Ready, Probe, Bitmap, Stop, Stopped, Cancel, Ping, Pong, Goodbye)
}
KEY = TransferKey(7, 3)
EXAMPLES: list[Message] = [
    Ready(KEY, 1, 1000, 0.1, 0.01),
    Ready(KEY, 1, 1000, 0.0, None),
    Probe(KEY, 1, 2, (0, 1)),
    Bitmap(KEY, 1, bytes([0b101])),
    Stop(KEY, 3, 2),
    Stopped(KEY, 4, 2),
    Cancel(KEY, Direction.SEND, Reason.DEADLINE, "too late"),
    Ping(1_000_000_001),
    Pong(1_000_000_001),
    Goodbye("closed"),
]


def part(heading: str) -> str:
    """Of the page, below a heading."""
    found = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#+ |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found, heading
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Cells of all tables, without those of their heads."""
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in cells] for cells in lines if not set("".join(cells)) <= set("- ")]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def test_kinds_and_their_longest_bodies() -> None:
    listed = {
        int(cells[0]): (cells[1], int(cells[2]))
        for cells in rows(part("The channel"))
        if len(cells) == 4 and cells[1].isupper()
    }
    assert listed == {kind: (kind.name, entry.maximum_bytes) for kind, entry in TYPES.items()}
    assert set(listed) == set(MessageKind)


@pytest.mark.parametrize("kind", [kind for kind in MessageKind if kind is not MessageKind.HELLO])
def test_fields_lie_where_the_page_says(kind: MessageKind) -> None:
    entry = TYPES[kind]
    heading = "PING and PONG" if kind in {MessageKind.PING, MessageKind.PONG} else kind.name
    body = [cells for cells in rows(part(heading)) if len(cells) == 4][1:]
    offset, layout = 0, "!"
    for place, kind_of_field, *_ in body:
        if kind_of_field in BEHIND_THE_LAYOUT:
            assert place == f"{offset}-"
            continue
        layout += FORMATS[kind_of_field]
        end = offset + {"B": 1, "H": 2, "I": 4, "Q": 8, "d": 8}[FORMATS[kind_of_field]]
        assert place == (f"{offset}-{end - 1}" if end - offset > 1 else f"{offset}")
        offset = end
    assert layout == (entry.layout.format if hasattr(entry, "layout") else "!")
    names = [field.name for field in fields(entry)]
    if names[0] == "key":
        names[:1] = ["tensor", "round"]
    assert [cells[2].strip("`") for cells in body] == names


def test_every_field_of_a_hello_with_its_bounds() -> None:
    schema = PeerHello.model_json_schema()
    listed = {cells[0].strip("`"): " ".join(cells[1:]) for cells in rows(part("HELLO"))}
    both = schema["properties"] | schema["$defs"]["_Address"]["properties"]
    assert set(listed) - {"field", "field of `data"} == set(both)
    for name, described in both.items():
        for bound in bounds(described):
            assert str(bound) in re.findall(r"\d+", listed[name]), (name, bound)
    assert [version for version in PROTOCOL_VERSIONS if f"today there is {version}" in listed["versions"]]
    sent = json.loads(encode_hello(local_end(), Secrets(1, bytes(32))))
    assert set(sent) == set(schema["properties"])
    for field, value in (("transport", "mlt"), ("chunk_bytes", 0)):
        assert f"without it {value}" in listed[field].replace("`", "")
        del sent[field]
    assert decode_hello(json.dumps(sent).encode()).transport == "mlt"


def bounds(described: dict[str, Any]) -> list[int]:
    """Of the values, the length and the elements of a field, all inclusive."""
    named = ("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength")
    found = [described[name] for name in named if name in described]
    if "exclusiveMaximum" in described:
        found.append(described["exclusiveMaximum"] - 1)
    return found + (bounds(described["items"]) if "items" in described else [])


def local_end() -> LocalEnd:
    paths = (PathAddress(0, "10.101.0.1", 18515), PathAddress(1, "10.102.0.1", 18515))
    return LocalEnd("host1", paths, 33554432, 1472, authenticate=False, control_dscp=40)


def test_reasons() -> None:
    listed = {cells[1]: int(cells[0]) for cells in rows(part("CANCEL")) if cells[1].isupper()}
    assert listed == {reason.name: reason.value for reason in Reason}


def test_times() -> None:
    listed = [(cells[0], cells[1]) for cells in rows(part("Time"))[1:]]
    assert listed == [
        (f"{channel.DEFAULT_HANDSHAKE_LIMIT_NS / SECOND:g} s", "until TCP and TLS are set up"),
        (f"{SETTINGS.handshake_ns / SECOND:g} s", "from then until the peer's HELLO"),
        (
            f"{SETTINGS.ping_interval_ns / SECOND:g} s",
            "between two PINGs, of which the first follows the peer's HELLO",
        ),
        (
            f"{SETTINGS.silence_ns / SECOND:g} s",
            "without a byte on the control channel or a genuine datagram from the peer",
        ),
        (
            f"{channel.DEFAULT_IDLE_LIMIT_NS / SECOND:g} s",
            "without a byte on the control channel, whatever else comes",
        ),
        (
            f"{sockets.USER_TIMEOUT_MILLISECONDS / 1000:g} s",
            "TCP's acknowledgement of what was sent (`TCP_USER_TIMEOUT`)",
        ),
        (f"{DEFAULT_DEADLINE_SECONDS:g} s", "a transfer, from its post; the user chooses it"),
    ]
    first, *later = [SETTINGS.nudge_ns // MILLISECOND << number for number in range(MOST_NUDGES)]
    said = f"{', '.join(map(str, later[:-1]))} and {later[-1]} ms after it"
    assert f"So {first} ms after a message that matters" in part("Time")
    assert said in part("Time")


@pytest.mark.parametrize(
    "phrase",
    [
        f"the port is {AGENT_PORT} unless",
        f"at most {messages.MAXIMUM_TEXT_BYTES} bytes, cut anywhere",
        f"header's {AGENT_HEADER_BYTES} bytes, and {AUTHENTICATION_TAG_BYTES} for the tag",
        f"0 to {messages.MAXIMUM_MARKED_PATHS} path numbers",
        f"more than {messages.MAXIMUM_MARKED_PATHS} paths, data of several",
        f"| transport `tcp`: longest piece of a tensor, {LEAST_CHUNK_BYTES} or more;",
        f"a `chunk_bytes` below {LEAST_CHUNK_BYTES} there",
        f"keeps it, up to {SETTINGS.maximum_transfers} of them",
        f"is kept, up to {SETTINGS.maximum_transfers} in each direction",
        f"waits {sending.REST_LEAST_NS // MILLISECOND} ms, twice as long each time, "
        f"up to {sending.REST_MOST_NS // MILLISECOND} ms",
        f"*The time*: {SETTINGS.answer_margin_ns / MILLISECOND:g} ms after the PROBE",
        f"tensor {ANNOUNCEMENT_TENSOR}, round {FIRST_ROUND}, {ANNOUNCEMENT_BYTES} elements of int8",
        f"`tensor` (0 to {MAXIMUM_NUMBER}), `rounds` (1 to {MAXIMUM_ROUNDS})",
        f"`shape` (up to {MAXIMUM_DIMENSIONS} numbers",
        f"more than {channel.DEFAULT_OUTGOING_LIMIT_BYTES >> 20} MiB wait for it",
        f"for more than {MOST_UNSAID_BYTES >> 10} KiB of answers",
        f"{listener.ListenerLimits().setting_up} in all",
        f"and {listener.ListenerLimits().setting_up_per_address} from one IP",
    ],
)
def test_numbers_in_sentences(phrase: str) -> None:
    assert phrase in " ".join(PAGE.split())


def test_powers_of_two_in_sentences() -> None:
    assert (MAXIMUM_ELEMENTS, MAXIMUM_PACKETS) == (2**32, 2**24)
    assert "at most 2³², in at most 2²⁴ packets" in part("READY")
    assert set(Announcement.model_fields) <= set(re.findall(r"`(\w+)`", part("Who says what when")))


def test_example_messages() -> None:
    lines = blocks("text", part("Examples"))[0].splitlines()
    assert [line.split()[0] for line in lines] == [example.kind.name for example in EXAMPLES]
    for line, example in zip(lines, EXAMPLES, strict=True):
        data = bytes.fromhex(line.partition(" ")[2])
        assert data == encode_message(example)
        assert list(MessageReader().messages(data)) == [example]


def test_the_example_of_a_hello() -> None:
    head = bytes.fromhex(blocks("text", part("Examples"))[1])
    body = blocks("json", part("Examples"))[0].replace("\n", "").encode()
    (hello,) = MessageReader(is_greeted=False).messages(head + body)
    assert isinstance(hello, Hello)
    assert encode_message(hello)[: len(head)] == head
    assert f"of {len(body)} bytes without line ends" in part("Examples")
    found = decode_hello(hello.body)
    assert found.data_addresses == local_end().data_addresses
    assert json.loads(body) == json.loads(encode_hello(local_end(), Secrets(found.token, found.key_bytes)))
