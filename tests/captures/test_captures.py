"""Every capture in this folder is read by the reader of its switch OS, as a push would read it."""

from pathlib import Path

import pytest

from mltswitch.deploy.capture import Capture, DeviceCapture
from mltswitch.documents import load_document
from mltswitch.targets.state import differences

FILES = sorted(Path(__file__).parent.glob("*.yaml"))


def devices() -> list[tuple[str, DeviceCapture]]:
    """All devices of all files, by names for pytest."""
    found = [(path.stem, load_document(path, Capture).devices) for path in FILES]
    return [(f"{stem}-{number}", each) for stem, listed in found for number, each in enumerate(listed, 1)]


@pytest.mark.parametrize("device", [pytest.param(each, id=name) for name, each in devices()])
def test_the_reader_reads_it(device: DeviceCapture) -> None:
    wanted, target = device.wanted_state(), device.target
    assert tuple(device.answers) == target.queries(wanted)
    assert tuple(device.identity) == target.identity_queries
    running = device.read()
    assert [port.name for port in running.state.ports] == [port.name for port in wanted.ports]
    assert all(str(each) for each in differences(wanted, running.state))
    target.diff(running, wanted, target.hardware(device.hardware))
    who = device.who()
    assert who is None or (who.model, who.release) == (device.model, device.release)


def test_there_are_captures() -> None:
    assert len(devices()) >= 2
