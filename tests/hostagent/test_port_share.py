"""Shares of one port: the rule, the file with its seats, and who falls silent."""

import multiprocessing as mp
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.errors import MachineError, UserInputError
from mltswitch.hostagent import Agent, AgentConfig
from mltswitch.hostagent.port_share import (
    LEAST,
    MORE,
    SEATS,
    SILENT_NS,
    TICK_SECONDS,
    Demand,
    PortShare,
    PortShareSettings,
    Wish,
    share_of,
)

SECOND = 1_000_000_000
TICK_NS = round(TICK_SECONDS * SECOND)
wishes = st.lists(
    st.builds(Wish, st.integers(0, 7), st.floats(0.01, 1.0), st.floats(0.01, 0.125)), min_size=1, max_size=70
)


@given(wishes)
def test_the_port_is_divided_once_and_the_highest_go_first(found: list[Wish]) -> None:
    shares = [share_of(place, found) for place in range(len(found))]
    assert all(0 < share <= 1 for share in shares)
    least = [min(wish.share, wish.minimum_share) for wish in found]
    least = [share / max(1, sum(least)) for share in least]
    assert all(share >= kept - 1e-9 for share, kept in zip(shares, least, strict=True)), "nobody starves"
    assert sum(shares) <= 1 + 1e-9, "not more than the port"
    if sum(wish.share for wish in found) >= 1:
        assert sum(shares) == pytest.approx(1), "and no less, where all of it can be used"
    for one, share in zip(found, shares, strict=True):
        for other, theirs, kept in zip(found, shares, least, strict=True):
            if one.priority > other.priority and theirs > kept + 1e-6:
                assert share >= one.share - 1e-6, "the higher one has all that it can use"


def test_shares_by_hand() -> None:
    def shares(*found: tuple[int, float]) -> list[float]:
        every = [Wish(*each) for each in found]
        return [round(share_of(place, every), 3) for place in range(len(every))]

    assert shares((0, 1)) == [1.0]
    assert shares((0, 1), (0, 1)) == [0.5, 0.5]
    assert shares((7, 1), (0, 1)) == [0.95, 0.05]
    assert shares((7, 1), (7, 1), (3, 1)) == [0.475, 0.475, 0.05]
    assert shares((7, 0.2), (0, 1)) == [0.2, 0.8]
    assert shares((7, 0.2), (3, 0.2)) == [0.5, 0.5], "what nobody can use is everybody's"
    assert shares((0, 0.02), (0, 1)) == [0.02, 0.98]
    assert shares(*[(0, 1)] * 63, (7, 1)) == [round(1 / 64, 3)] * 64, "minima shrink"


def _port(arrived_bytes: float = 0.0, **fields: Any) -> Any:
    return SimpleNamespace(**{"bps": 1e9, "open_flows": 1} | fields, arrived_bytes=round(arrived_bytes))


def _wishes(demand: Demand, shares_of_port: Sequence[float], first_tick: int = 0) -> list[float]:
    """Of ticks in which such shares of the port came."""
    found, come = [], 0.0
    for tick, share in enumerate(shares_of_port):
        come += share * 1e9 / 8 * TICK_SECONDS
        found.append(demand.wish(_port(come), (first_tick + tick) * TICK_NS))
    return found


def test_what_senders_do_not_use_is_left_to_others() -> None:
    demand = Demand()
    assert demand.wish(_port(open_flows=0), 0) == 0
    assert demand.wish(_port(bps=0), 0) == 1, "nobody knows the port's rate"
    found = _wishes(Demand(), [0.1] * 9)
    assert found[:5] == [1.0] * 5, "for a window it may be about to begin"
    assert found[6:] == [pytest.approx(MORE * 0.1)] * 3
    demand = Demand()
    assert _wishes(demand, [0.0] * 9)[-1] == LEAST
    demand.share = LEAST
    assert _wishes(demand, [LEAST] * 12, 9)[-1] == 1, "they use what they get: they may want more"
    assert set(_wishes(Demand(), [0, 0, 0, 4] * 9)) == {1}, "few large datagrams are no pause"


def test_a_light_job_that_goes_first_leaves_the_rest_to_others(tmp_path: Path) -> None:
    """Whatever its traffic jitters."""
    random = np.random.default_rng(1)
    light, heavy, ticks = (_seat(tmp_path / "port", 7), Demand()), _seat(tmp_path / "port"), list[float]()
    come = 0.0
    for tick in range(300):
        now_ns = SECOND + tick * TICK_NS
        come += min(light[1].share, 0.3 * random.uniform(0.9, 1.1)) * 1e9 / 8 * TICK_SECONDS
        light[1].share = light[0].share(light[1].wish(_port(come), now_ns), now_ns)
        ticks.append(heavy.share(1.0, now_ns))
    assert fmean(ticks[20:]) > 0.55
    light[0].close()
    heavy.close()


def _seat(path: Path, priority: int = 0) -> PortShare:
    return PortShare(PortShareSettings(file=str(path), priority=priority))


def test_agents_hear_of_each_other_until_one_falls_silent(tmp_path: Path) -> None:
    high, low = _seat(tmp_path / "port", 7), _seat(tmp_path / "port", 1)
    assert (tmp_path / "port").stat().st_mode & 0o777 == 0o600
    assert low.share(1.0, SECOND) == 1
    assert high.share(1.0, SECOND) == pytest.approx(0.95)
    assert low.share(1.0, SECOND + 1) == pytest.approx(0.05)
    assert low.share(1.0, SECOND + SILENT_NS + 2) == 1, "the other one says nothing any more"
    assert high.share(1.0, SECOND + SILENT_NS + 3) == pytest.approx(0.95)
    assert high.share(0.0, SECOND + SILENT_NS + 4) == 1, "it has no open receive"
    assert low.share(1.0, SECOND + SILENT_NS + 5) == 1
    high.close()
    low.close()


@pytest.mark.parametrize("how", ["cut", "removed", "replaced"])
def test_a_file_that_somebody_spoils_is_made_anew(tmp_path: Path, how: str) -> None:
    path = tmp_path / "port"
    high, low = _seat(path, 7), _seat(path, 1)
    assert [each.share(1.0, SECOND) for each in (high, low, high)][-1] == pytest.approx(0.95)
    if how == "cut":
        os.truncate(path, 7)
    else:
        path.unlink()
    if how == "replaced":
        path.touch()
    for tick in range(3):
        found = [each.share(1.0, SECOND + tick) for each in (high, low)]
    assert found == [pytest.approx(0.95), pytest.approx(0.05)]
    late = _seat(path, 7)
    assert late.share(1.0, SECOND + 3) == pytest.approx(0.475)
    for seat in (high, low, late):
        seat.close()


def test_a_child_keeps_no_seat(tmp_path: Path) -> None:
    parent = _seat(tmp_path / "port")
    child = os.fork()
    if not child:
        signal.pause()
    try:
        parent.close()
        for seat in [_seat(tmp_path / "port") for _ in range(SEATS)]:
            seat.close()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_seat_is_free_when_its_agent_is_gone(tmp_path: Path) -> None:
    seats = [_seat(tmp_path / "port") for _ in range(SEATS)]
    with pytest.raises(MachineError, match="has no seat left of 64"):
        _seat(tmp_path / "port")
    seats[3].close()
    seats[3] = _seat(tmp_path / "port")
    for seat in seats:
        seat.close()


def _sit(path: str, pipe: Any) -> None:
    seat = _seat(Path(path), 7)
    while True:
        pipe.send(seat.share(1.0, time.monotonic_ns()))
        pipe.recv()


def test_a_killed_agent_is_soon_out_of_it(tmp_path: Path) -> None:
    ours, theirs = mp.Pipe()
    process = mp.get_context("fork").Process(target=_sit, args=(str(tmp_path / "port"), theirs), daemon=True)
    process.start()
    assert ours.recv() == 1
    low = _seat(tmp_path / "port")
    ours.send(None)
    ours.recv()
    assert low.share(1.0, time.monotonic_ns()) == pytest.approx(0.05)
    os.kill(process.pid or 0, signal.SIGKILL)
    killed = time.monotonic()
    while low.share(1.0, time.monotonic_ns()) < 1:
        assert time.monotonic() < killed + 5
    process.join()
    low.close()


@pytest.mark.parametrize("kind", ["other", "zeros", "folder", "link", "nowhere"])
def test_a_file_that_cannot_be_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "port"
    if kind == "other":
        path.write_text("a file of somebody's")
    elif kind == "zeros":
        path.write_bytes(bytes(1 << 20))
    elif kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "target")
    else:
        path = tmp_path / "missing" / "port"
    with pytest.raises(MachineError, match=str(path)):
        _seat(path)
    if kind == "other":
        assert path.read_text() == "a file of somebody's"
    if kind == "zeros":
        assert path.read_bytes() == bytes(1 << 20)


def test_an_agent_without_a_seat_does_not_open(tmp_path: Path) -> None:
    (tmp_path / "port").write_text("a file of somebody's")
    options = {"name": "a", "listen": "127.0.0.1:0", "port_share": {"file": "port"}}
    (tmp_path / "agent.yaml").write_text(str(options))
    config = AgentConfig.load(tmp_path / "agent.yaml")
    assert config.port_share is not None
    assert config.port_share.file == str(tmp_path / "port"), "from the agent's file on"
    with pytest.raises(MachineError, match="is a file of something else"):
        Agent(config)
    for wrong in ({"priority": 8}, {"minimum_share": 0}, {"minimum_share": 0.5}, {"file": ""}):
        options["port_share"] = {"file": "port", **wrong}
        (tmp_path / "agent.yaml").write_text(str(options))
        with pytest.raises(UserInputError, match="port_share"):
            AgentConfig.load(tmp_path / "agent.yaml")
