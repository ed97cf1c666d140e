"""The command-line session against the Onyx emulator: answers, refusals, host keys, lost connections."""

import dataclasses
import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.deploy import command_line
from mltswitch.deploy.command_line import CommandLineSession, open_command_line
from mltswitch.deploy.connector import connect
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device, Secret
from mltswitch.targets import Step, target_for
from switchsim.faults import DropBeforeLine, Fault, Faults, RefuseLine
from switchsim.onyx import OnyxDevice
from tests.deploy.emulated import served
from tests.deploy.silent import silent_server

NETMIKO_TYPE = "mellanox_mlnxos"
ONE_LINE_MODE = Step("no cli default prefix-modes enable")
PASSWORD = "tr0ub4dor&3"  # noqa: S105 (of an emulator that lives as long as its test)


@contextmanager
def onyx(
    folder: Path, faults: Faults | None = None, password: str | None = None
) -> Iterator[tuple[OnyxDevice, Device]]:
    """An emulated switch and the device by which one reaches it."""
    switch = OnyxDevice()
    with served(folder, "onyx", switch, faults, password=password) as rack:
        yield switch, rack.devices[0]


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OnyxDevice, Device]]:
    with onyx(tmp_path_factory.mktemp("onyx")) as running:
        yield running


@pytest.fixture
def session(switch: tuple[OnyxDevice, Device]) -> Iterator[CommandLineSession]:
    with open_command_line(switch[1], NETMIKO_TYPE) as made:
        yield made


def trust(port: int, mode: str = "L3") -> Step:
    return Step(f"interface ethernet 1/{port} qos trust {mode}")


def test_answers_are_exact_between_changes(
    switch: tuple[OnyxDevice, Device], session: CommandLineSession
) -> None:
    show = "show qos interface ethernet 1/1 | json-print"
    before = json.loads(session.ask(show))
    session.apply((ONE_LINE_MODE, trust(1)))
    after = json.loads(session.ask(show))
    assert before != after
    assert switch[0].fact("1/1", "trust") == "L3"
    session.apply((trust(1, "L2"), Step("configuration write")))
    assert json.loads(session.ask(show)) == before
    assert "Unsaved changes : no" in session.ask("show configuration files")


def test_no_line_is_sent_after_a_refused_one(
    switch: tuple[OnyxDevice, Device], session: CommandLineSession
) -> None:
    steps = (ONE_LINE_MODE, trust(2), Step("interface ethernet 1/2 traffic-class 9 dcb ets strict"), trust(3))
    with pytest.raises(DeviceError) as caught:
        session.apply(steps)
    text = str(caught.value)
    assert text.startswith(f"onyx1 ({switch[1].endpoint}): refuses step 3 of 4, '{steps[2].command}': %")
    assert "standalone" not in text
    assert "\n" not in text
    assert switch[0].fact("1/2", "trust") == "L3"
    assert switch[0].fact("1/3", "trust") == "L2"
    assert session.ask("show version")


def test_a_refused_question_names_it(session: CommandLineSession) -> None:
    with pytest.raises(DeviceError, match=r"refuses 'show nonsense': % Unrecognized command"):
        session.ask("show nonsense")
    assert session.ask("show version")


def test_a_refusal_text_inside_an_answer_is_no_refusal(session: CommandLineSession) -> None:
    assert "Running database" in session.ask("show running-config")


@pytest.mark.parametrize("text", ["% Buffer is full", "Error: out of memory", "error while committing"])
def test_every_way_of_refusing_is_noticed(tmp_path: Path, text: str) -> None:
    with (
        onyx(tmp_path, RefuseLine("1/2 qos trust", f"{text}\n")) as (switch, reached),
        open_command_line(reached, NETMIKO_TYPE) as session,
    ):
        with pytest.raises(DeviceError) as caught:
            session.apply((ONE_LINE_MODE, trust(1), trust(2), trust(3)))
        assert str(caught.value).endswith(text)
        assert [switch.fact(f"1/{port}", "trust") == "L3" for port in (1, 2, 3)] == [True, False, False]


def test_a_lost_connection_is_a_device_error_at_once(tmp_path: Path) -> None:
    with (
        onyx(tmp_path, DropBeforeLine(pattern="1/2 qos trust")) as (switch, reached),
        open_command_line(reached, NETMIKO_TYPE) as session,
    ):
        with pytest.raises(DeviceError, match=r"^onyx1 \(.*\): it closed the connection$"):
            session.apply((ONE_LINE_MODE, trust(1), trust(2), trust(3)))
        assert switch.fact("1/1", "trust") == "L3"
        assert switch.fact("1/3", "trust") == "L2"


def test_a_session_that_never_opens_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "OPEN_SECONDS", 1.0)
    with (
        silent_server(tmp_path) as reached,
        pytest.raises(DeviceError, match=r"leaf1 \(.*\): has not opened a session after 1 s"),
        open_command_line(reached, NETMIKO_TYPE),
    ):
        pass


@dataclasses.dataclass
class Slow(Faults):
    """Lines with this in them take so long."""

    pattern: str
    seconds: float

    def on_line(self, number: int, line: str) -> Fault | None:
        time.sleep(self.seconds if self.pattern in line else 0.0)
        return None


@pytest.mark.parametrize("own", [None, 0.5])
def test_a_line_has_the_time_that_its_step_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: float | None
) -> None:
    monkeypatch.setattr(command_line, "LINE_SECONDS", 1.0)
    with (
        onyx(tmp_path, Slow("1/2 qos trust", 1.5)) as (switch, reached),
        open_command_line(reached, NETMIKO_TYPE) as session,
    ):
        session.apply((ONE_LINE_MODE, trust(1), dataclasses.replace(trust(2, "both"), seconds=5.0)))
        assert switch.fact("1/2", "trust") == "both"
        with pytest.raises(DeviceError, match=f"after {own or 1.0:g} s; it may still be running$"):
            session.apply((dataclasses.replace(trust(2), seconds=own), trust(3)))
        assert switch.fact("1/3", "trust") == "L2"


PROMPT = "onyx1 [standalone: master] (config) # "


@pytest.mark.parametrize(
    "text",
    [
        "a notice of one line",
        f"{PROMPT}show running-config\n{PROMPT}\nand more",
        f"\nNov 26 14:00:00 onyx1 mgmtd: a message in between\n{PROMPT}",
        "\x1b[32mgreen\x1b[m\x1b[K",
        "ends like a prompt #",
        "x" * 200_000,
    ],
)
def test_each_answer_stays_with_its_line(tmp_path: Path, text: str) -> None:
    """Whatever is printed between, the next refusal is that of the line that is refused."""
    with (
        onyx(tmp_path, RefuseLine("1/2 qos trust", text)) as (switch, reached),
        open_command_line(reached, NETMIKO_TYPE) as session,
    ):
        steps = (ONE_LINE_MODE, trust(2), trust(1), trust(2), Step("nonsense"), trust(3))
        with pytest.raises(DeviceError, match=r"refuses step 5 of 6, 'nonsense': % Unrecognized command"):
            session.apply(steps)
        assert [switch.fact(f"1/{port}", "trust") for port in (1, 2, 3)] == ["L3", "L2", "L2"]
        assert "Unsaved changes : yes" in session.ask("show configuration files")


@given(
    line=st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1).filter(str.strip),
    width=st.integers(1, 40),
    mark=st.sampled_from(["\n", " \n", " \b", "\n  "]),
)
def test_a_line_broken_at_the_terminal_s_edge_is_known_again(line: str, width: int, mark: str) -> None:
    echo = mark.join(line[begin : begin + width] for begin in range(0, len(line), width))
    assert command_line._echo_end(line, f"{echo}\nanswer") == len(echo)
    assert command_line._echo_end(f"{line}~", echo) == -1


def test_a_password_comes_from_the_environment_and_is_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RACK_SECRET", PASSWORD)
    with onyx(tmp_path, password=PASSWORD) as (_, with_key), caplog.at_level(logging.DEBUG):
        secret = Secret("mltswitch_password_env", "RACK_SECRET")
        reached = dataclasses.replace(with_key, key_file=None, password=secret)
        with connect(reached, target_for("onyx")) as session:
            text = session.ask("show version")
    for place in (text, caplog.text, repr(reached)):
        assert PASSWORD not in place
