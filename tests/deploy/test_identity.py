"""A device is held against the inventory before anything is sent: each emulated switch is only itself."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.deploy.identity import check_identity
from mltswitch.deploy.ssh import connect
from mltswitch.errors import DeviceError
from mltswitch.inventory import Device
from mltswitch.lab.emulators import (
    CumulusDevice,
    EmulatorServer,
    EosDevice,
    Faults,
    IcosDevice,
    OnyxDevice,
    SonicDevice,
    load_authorized_keys,
    load_host_key,
)
from mltswitch.lab.emulators.device import EmulatedDevice, serial_number
from mltswitch.lab.emulators.faults import Fault
from mltswitch.targets import Identity, target_for, targets
from tests.deploy.doubles import device
from tests.deploy.sshd import Sshd, make_key

KINDS: dict[str, Callable[[str], EmulatedDevice]] = {
    "cumulus": CumulusDevice,
    "eos": EosDevice,
    "icos": IcosDevice,
    "onyx": OnyxDevice,
    "sonic": SonicDevice,
}
READERS = {name: target for name, target in targets().items() if target.identify is not None}
SESSION_SET_UP = ("terminal ", "enable", "no cli session ", "exit")


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
def reached(folder: Path, platform: str, calls_itself: str) -> Iterator[tuple[Device, Heard]]:
    """A switch that calls itself so, as the inventory's device leaf1."""
    host_key, heard = make_key(folder / "host"), Heard()
    make_key(folder / "id")
    server = EmulatorServer(
        KINDS[platform](calls_itself),
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


@pytest.mark.parametrize("platform", KINDS)
def test_each_switch_is_accepted_as_itself_and_refused_as_another(tmp_path: Path, platform: str) -> None:
    with reached(tmp_path, platform, "leaf1") as (leaf, heard):
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
            change(leaf, serial=serial.lower(), model=identity.model),
        ):
            assert asked(same) == identity
        for other, told in (
            (change(leaf, name="spine1", switch="spine1"), "mltswitch_hostname"),
            (change(leaf, hostname="spine1"), "mltswitch_hostname"),
            (change(leaf, serial=serial_number("spine1")), "mltswitch_serial"),
            (change(leaf, model="another"), "mltswitch_model"),
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
            for line in heard.lines
            if line and line not in queries and not line.startswith(SESSION_SET_UP)
        }
        assert not unknown


def test_a_linux_host_is_known_by_its_host_name_and_machine_id(sshd: Sshd) -> None:
    here = Path("/proc/sys/kernel/hostname").read_text().strip()
    meant = sshd.device("leaf1", platform="linux", hostname=here)
    identity = asked(meant)
    assert identity is not None
    assert identity.hostname == here
    machine_id = Path("/etc/machine-id")
    if machine_id.is_file():
        assert identity.serial == machine_id.read_text().strip()
    with pytest.raises(DeviceError, match="says that it is"):
        asked(sshd.device("leaf1", platform="linux"))


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
