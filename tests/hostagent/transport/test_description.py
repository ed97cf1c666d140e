"""Transports are found by their descriptions, those of other packages too."""

import sys
from dataclasses import fields
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mltswitch.errors import UserInputError
from mltswitch.hostagent.transport import description
from mltswitch.hostagent.transport.description import transport_named, transports
from mltswitch.hostagent.transport.records import TransferStatistics


def test_those_of_the_package() -> None:
    assert list(transports()) == sorted(transports()) >= ["ltp", "mlt", "tcp"]
    for name, entry in transports().items():
        assert entry.name == name
        assert entry.settings().model_dump() is not None
    with pytest.raises(UserInputError, match=r"unknown transport 'udp' .*ltp, mlt, tcp"):
        transport_named("udp")


def test_one_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    pigeon: Any = SimpleNamespace(name="pigeon")
    module: Any = ModuleType("pigeon_post")
    module.PIGEON = pigeon
    monkeypatch.setitem(sys.modules, "pigeon_post", module)

    def found(group: str) -> list[Any]:
        assert group == "mltswitch.transports"
        return [EntryPoint("pigeon", "pigeon_post:PIGEON", group)]

    monkeypatch.setattr(description, "entry_points", found)
    transports.cache_clear()
    try:
        assert list(transports()) == ["ltp", "mlt", "pigeon", "tcp"]
        assert transport_named("pigeon") is pigeon
    finally:
        transports.cache_clear()


def test_what_statistics_add_up_to() -> None:
    numbers: dict[str, Any] = {
        entry.name: 0 for entry in fields(TransferStatistics) if entry.type in {int, "int"}
    }
    nothing = TransferStatistics(**numbers)
    assert (nothing.seconds, nothing.missing_share, nothing.goodput_bps) == (0, 0, 0)
    numbers |= {"size_bytes": 1000, "packets": 4, "packets_received": 3}
    half = TransferStatistics(**numbers | {"posted_ns": 10**9, "ended_ns": 3 * 10**9})
    assert (half.seconds, half.missing_share, half.goodput_bps) == (2, 0.25, 3000)
