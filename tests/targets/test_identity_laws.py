"""A device is held against the inventory and the plan before anything is sent, by what it says of itself."""

import dataclasses
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.deploy.connector import connect
from mltswitch.deploy.identity import check_identity
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.targets import Identity, PortState, Step, SwitchState, target_for, targets
from mltswitch.targets.common import NOT_SAVED, SAVED_UNREAD
from switchsim import KINDS, EmulatorServer, Faults, load_authorized_keys, load_host_key
from switchsim.device import EmulatedDevice, serial_number
from switchsim.faults import Fault
from tests.deploy.doubles import device
from tests.deploy.sshd import make_key

READERS = {name: target for name, target in targets().items() if target.identify is not None}
SESSION_SET_UP = ("terminal ", "sonic-cli", "enable", "no cli session ", "exit")


class Heard(Faults):
    """No fault; keeps every line that reached the switch."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_line(self, number: int, line: str) -> Fault | None:
        """Let it pass."""
        del number
        self.lines.append(line)
        return None


@contextmanager
def reached(folder: Path, platform: str, emulated: EmulatedDevice) -> Iterator[tuple[Device, Heard]]:
    """An emulated switch, as the inventory's device leaf1."""
    host_key, heard = make_key(folder / "host"), Heard()
    make_key(folder / "id")
    server = EmulatorServer(
        emulated,
        host_key=load_host_key(folder / "host"),
        authorized_keys=load_authorized_keys(folder / "id.pub"),
        faults=heard,
    )
    with server:
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {host_key}\n")
        yield (
            device(
                "leaf1",
                platform=platform,
                switch="leaf1",
                port=server.port,
                key_file=folder / "id",
                known_hosts_file=folder / "known_hosts",
            ),
            heard,
        )


def asked(reached_by: Device) -> Identity | None:
    """What the device says about itself, if it is the one that is meant."""
    target = target_for(reached_by.platform)
    with connect(reached_by, target) as session:
        return check_identity(reached_by, target, session)


@pytest.mark.parametrize("platform", sorted(KINDS.keys() & READERS.keys()))
def test_each_switch_is_accepted_as_itself_and_refused_as_another(tmp_path: Path, platform: str) -> None:
    with reached(tmp_path, platform, KINDS[platform]("leaf1")) as (leaf, heard):
        serial = serial_number("leaf1")
        identity = asked(leaf)
        assert identity is not None
        assert (identity.hostname, identity.serial) == ("leaf1", serial)
        assert identity.model
        assert identity.release
        change = dataclasses.replace
        for same in (
            change(leaf, name="rack7-leaf1"),
            change(leaf, switch="tor1"),
            change(leaf, name="LEAF1.example.net", switch="tor1"),
            change(leaf, name="tor1", switch="tor1", hostname="leaf1"),
            change(leaf, serial=serial.lower(), model=identity.model, release=identity.release),
        ):
            assert asked(same) == identity
        for other, told in (
            (change(leaf, name="spine1", switch="spine1"), "mltswitch_hostname"),
            (change(leaf, hostname="spine1"), "mltswitch_hostname"),
            (change(leaf, serial=serial_number("spine1")), "mltswitch_serial"),
            (change(leaf, model="another"), "mltswitch_model"),
            (change(leaf, release="another"), "mltswitch_release"),
        ):
            with pytest.raises(DeviceError) as refused:
                asked(other)
            for said in (
                f"{other.name} (127.0.0.1:",
                "says that it is leaf1",
                serial,
                "nothing was sent",
                told,
            ):
                assert said in str(refused.value)
        queries = target_for(platform).identity_queries
        unknown = {
            line
            for lines in heard.lines
            for line in re.split(r"(?:^|; )echo [0-9a-f]{16}(?: \$\?)?(?:; |$)", lines)
            if line and line not in queries and not line.startswith(SESSION_SET_UP)
        }
        assert not unknown


class Queries(Protocol):
    """A session in which nothing may change a device."""

    def ask(self, command: str) -> str:
        """What the command prints."""

    def ask_all(self, commands: Sequence[str]) -> dict[str, str]:
        """What each of them prints."""
        return {command: self.ask(command) for command in commands}

    def apply(self, steps: Sequence[Step]) -> None:
        """Nothing that is tested here comes to this."""
        raise AssertionError(steps)

    def hang_up(self) -> None:
        """Nor to this."""
        raise AssertionError


class Typed(Queries):
    """A session with an emulated switch by its own command line, without SSH."""

    def __init__(self, emulated: EmulatedDevice) -> None:
        self._emulated = emulated
        self._session = emulated.open_session("admin")
        for line in ("sonic-cli", "enable"):  # to the mode of shows; which of them, the OS knows
            self._session.enter(line)

    def ask(self, command: str) -> str:
        """What the command prints."""
        result = self._emulated.execute("admin", command, bytes)
        return self._session.enter(command).text if result is None else result.stdout.decode()


def meant(platform: str, **said: str) -> Device:
    """The device leaf1 of an inventory that nobody connects to."""
    return device("leaf1", platform=platform, switch="leaf1", port=1, key_file=None, **said)


@pytest.mark.parametrize(
    ("platform", "unknown", "known"),
    [
        ("cumulus", ("Cumulus Linux 5.3.1", "Cumulus Linux 4.4.5", "Cumulus Linux 5.40.0"), "5.14.0"),
        ("eos", ("4.18.1F", "4.2.1", "5.21.1F"), "4.21.8M"),
        ("icos", ("3.4.3.7", "16.1"), "6.2.0.5"),
        ("onyx", ("3.4.3002", "3.1.10", "3.100.1"), "3.10.4100"),
    ],
)
def test_a_release_that_nobody_has_read_needs_the_operators_word(
    platform: str, unknown: tuple[str, ...], known: str
) -> None:
    emulated, target = KINDS[platform]("leaf1"), target_for(platform)
    for release in unknown:
        setattr(emulated, "release", release)  # noqa: B010 (each kind of emulator has it)
        with pytest.raises(DeviceError, match=f"runs {platform} {release}, .*nothing was sent") as refused:
            check_identity(meant(platform), target, Typed(emulated))
        assert f"mltswitch_release: {release}" in str(refused.value)
        identity = check_identity(meant(platform, release=release), target, Typed(emulated))
        assert identity is not None
        assert identity.release == release
    setattr(emulated, "release", known)  # noqa: B010 (each kind of emulator has it)
    assert check_identity(meant(platform), target, Typed(emulated)) is not None


@pytest.mark.parametrize(
    ("platform", "models"),
    [
        ("cumulus", {"sn2700": "MSN2700", "sn3700": "MSN3700C", "sn2100": "SN2100", "sn5600": "SN5600"}),
        ("eos", {"trident3": "DCS-7050CX3-32S-F", "tomahawk": "DCS-7060CX-32S-R"}),
        ("icos", {"n4000": "N4064F", "n3000": "N3048ET-ON"}),
        ("onyx", {"sn2100": "MSN2100-CB2F", "sn2700": "MSN2700-CS2R", "sn3700": "MSN3700-VS2FO"}),
    ],
)
def test_a_plan_for_other_hardware_is_refused_by_name(platform: str, models: dict[str, str]) -> None:
    emulated, target = KINDS[platform]("leaf1"), target_for(platform)
    for hardware, model in models.items():
        setattr(emulated, "model", model)  # noqa: B010 (each kind of emulator has it)
        for planned in target.models:
            if planned == hardware:
                assert check_identity(meant(platform), target, Typed(emulated), planned) is not None
                continue
            with pytest.raises(DeviceError) as refused:
                check_identity(meant(platform), target, Typed(emulated), planned)
            assert f"is a {model}, hardware {hardware}; nothing was sent (expected {planned}," in str(
                refused.value
            )
    setattr(emulated, "model", "VX")  # noqa: B010 (a model that nobody has named)
    for planned in target.models:
        assert check_identity(meant(platform), target, Typed(emulated), planned) is not None


@pytest.mark.parametrize(
    ("platform", "port", "by_hand", "save"),
    [
        ("cumulus", "swp1", ("nv set interface swp9 link mtu 9000", "nv config apply -y"), "nv config save"),
        (
            "eos",
            "Ethernet1/1",
            ("configure", "interface Ethernet9/1", "mtu 9214", "end"),
            "write memory",
        ),
        (
            "onyx",
            "1/1",
            ("configure terminal", "interface ethernet 1/9 mtu 9216 force"),
            "configuration write",
        ),
        ("sonic", "Ethernet0", ("sudo counterpoll wredqueue enable",), "sudo config save -y"),
    ],
)
def test_what_runs_and_is_not_saved_is_a_note_until_it_is_saved(
    platform: str, port: str, by_hand: tuple[str, ...], save: str
) -> None:
    target = target_for(platform)
    typed, wanted = Typed(KINDS[platform]("leaf1")), SwitchState((PortState(port, True, None, ()),), ())

    def notes() -> tuple[str, ...]:
        answers = {query: typed.ask(query) for query in target.queries(wanted)}
        return target.read(answers, wanted, target.hardware(None)).notes

    assert NOT_SAVED not in notes()
    for line in by_hand:
        typed.ask(line)
    assert NOT_SAVED in notes()
    typed.ask(save)
    assert NOT_SAVED not in notes()


@pytest.mark.parametrize(
    ("platform", "port", "unread"), [("cumulus", "swp1", "unread\n"), ("sonic", "Ethernet0", "")]
)
def test_what_cannot_be_read_of_what_is_saved_is_a_note(platform: str, port: str, unread: str) -> None:
    target, typed = target_for(platform), Typed(KINDS[platform]("leaf1"))
    wanted = SwitchState((PortState(port, True, None, ()),), ())
    answers = {query: typed.ask(query) for query in target.queries(wanted)}
    [saved] = [query for query in answers if "startup" in query or "config_db.json" in query]
    assert SAVED_UNREAD not in target.read(answers, wanted, target.hardware(None)).notes
    assert SAVED_UNREAD in target.read({**answers, saved: unread}, wanted, target.hardware(None)).notes


@pytest.mark.parametrize(("platform", "port"), [("cumulus", "swp1"), ("eos", "Ethernet1/1"), ("onyx", "1/1")])
def test_a_box_that_nobody_knows_is_told_by_a_note(platform: str, port: str) -> None:
    target, emulated = target_for(platform), KINDS[platform]("leaf1")
    wanted, capabilities = SwitchState((PortState(port, True, None, ()),), ()), target.hardware(None)
    for model, is_told in ((getattr(emulated, "model"), False), ("MSX1410-BS2F", True)):  # noqa: B009 (likewise)
        setattr(emulated, "model", model)  # noqa: B010 (each kind of emulator has it)
        typed = Typed(emulated)
        answers = {query: typed.ask(query) for query in target.queries(wanted)}
        notes = target.read(answers, wanted, capabilities).notes
        assert any(f"whether {model}" in note and "is not known" in note for note in notes) is is_told


class ThisMachine(Queries):
    """A session with the machine on which the tests run."""

    def ask(self, command: str) -> str:
        """What the command prints."""
        return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout


def test_a_linux_host_is_known_by_its_host_name_and_machine_id() -> None:
    here = Path("/proc/sys/kernel/hostname").read_text().strip()
    identity = check_identity(meant("linux", hostname=here), target_for("linux"), ThisMachine())
    assert identity is not None
    assert identity.hostname == here
    machine_id = Path("/etc/machine-id")
    if machine_id.is_file():
        assert identity.serial == machine_id.read_text().strip()
    with pytest.raises(DeviceError, match="says that it is"):
        check_identity(meant("linux", hostname="another"), target_for("linux"), ThisMachine())


@pytest.mark.parametrize("platform", READERS)
@given(data=st.data())
def test_any_answer_is_an_identity_or_one_clear_error(platform: str, data: st.DataObject) -> None:
    target = READERS[platform]
    assert target.identify is not None
    words = st.sampled_from(
        ('{"hostname": ', '"leaf1"', "[]", "{}", "null", "}", "Serial Number", ": ", "\n", "..")
    )
    hostile = st.text(max_size=40) | st.lists(words, max_size=8).map("".join)
    answers = {query: data.draw(hostile) for query in target.identity_queries}
    try:
        identity = target.identify(answers)
    except DeviceError as error:
        assert "\n" not in str(error)
    else:
        assert all(isinstance(value, str) for value in dataclasses.astuple(identity))
