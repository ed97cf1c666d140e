"""From an agent's settings to the ends of its paths."""

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.doctor.settings import DoctorSettings, LocalPath, paths_of
from mltswitch.hostagent.settings import AgentSettings
from mltswitch.hostagent.spraying.modes import ByAddress, BySegments, BySourcePort, BySourceRoute
from mltswitch.hostagent.transport.rate import RateSettings

RATE = RateSettings.for_network(10e9, queue_bytes=0, noise_ns=10**9)


def agent(*addresses: str, **more: object) -> AgentSettings:
    return AgentSettings(
        name="host1",
        addresses=addresses,
        security=Plaintext(),
        rate=RATE,
        control_dscp=40,
        **more,  # type: ignore[arg-type]  # any of the settings
    )


def test_aliases_share_a_port() -> None:
    assert paths_of(agent("10.1.0.1", "10.2.0.1", data_port=7)) == (
        LocalPath("10.1.0.1", 7),
        LocalPath("10.2.0.1", 7),
    )


def test_ports_that_are_paths_follow_each_other() -> None:
    settings = agent("10.1.0.1", "10.1.0.1", spray=BySourcePort(), data_port=61000)
    assert paths_of(settings) == (LocalPath("10.1.0.1", 61000), LocalPath("10.1.0.1", 61001))
    anywhere = agent("10.1.0.1", "10.1.0.1", spray=BySourcePort(), data_port=0)
    assert [path.port for path in paths_of(anywhere)] == [0, 0]


def test_segments_of_sockets_and_of_routes() -> None:
    sticky = agent("fd00::1", "fd00::2", spray=BySegments((("fd00::8",), ("fd00::9",))), data_port=61000)
    assert paths_of(sticky) == (
        LocalPath("fd00::1", 61000, ("fd00::8",)),
        LocalPath("fd00::2", 61001, ("fd00::9",)),
    )
    (inserted,) = paths_of(agent("fd00::1", spray=ByAddress(segments=1)))
    assert inserted.header_bytes == paths_of(sticky)[0].header_bytes == 48 + 8 + 32


def test_source_routes_leave_one_path() -> None:
    routes = BySourceRoute("eth0", "02:00:00:00:00:01", {"host2": ((1, 2), (3, 4))})
    assert paths_of(agent("10.1.0.1", "10.1.0.1", spray=routes)) == (LocalPath("10.1.0.1"),)


@pytest.mark.parametrize(
    ("path", "header_bytes"),
    [
        (LocalPath("10.0.0.1"), 28),
        (LocalPath("fd00::1"), 48),
        (LocalPath("fd00::1", 0, ("fd00::9",)), 48 + 8 + 32),
        (LocalPath("fd00::1", 0, ("fd00::9", "fd00::8")), 48 + 8 + 48),
    ],
)
def test_what_a_packet_has_beside_its_payload(path: LocalPath, header_bytes: int) -> None:
    assert path.header_bytes == header_bytes


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"payload_bytes": 0}, "0 bytes of payload"),
        ({"payload_bytes": 65_508}, "bytes of payload"),
        ({"dscp": ()}, "cannot be examined"),
        ({"dscp": (64,)}, "cannot be examined"),
        ({"paths": (LocalPath("10.0.0.1"),) * 65}, "65 paths"),
        ({"paths": (LocalPath("somewhere"),)}, "somewhere"),
    ],
)
def test_what_no_agent_could_run_with(changes: dict[str, object], line: str) -> None:
    with pytest.raises(UserInputError, match=line):
        DoctorSettings(name="host1", **changes)  # type: ignore[arg-type]  # that is the point
