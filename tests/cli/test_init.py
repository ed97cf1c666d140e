"""`mltswitch init`: what it asks and writes is a rack that can be planned and rendered."""

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from mltswitch.cli import cli
from mltswitch.cli.init import QUESTIONS
from mltswitch.errors import MltswitchError

Init = Callable[..., Result]
LARGE = (
    *("--leaf", "eos", "--spine", "sonic/sn3700", "--leaves", "4", "--spines", "2", "--hosts", "20"),
    *(
        "--host-rate",
        "25Gbps",
        "--breakout",
        "4",
        "--uplink-rate",
        "100Gbps",
        "--mtu",
        "9000",
        "--burst",
        "7",
    ),
)
RACKS = {
    "linux": (),
    "mixed": LARGE,
    "queues alone": ("--qos-only", "--leaf", "onyx", "--spine", "cumulus"),
    "segments": ("--spray", "srv6", "--hosts", "100"),
    "bmv2": ("--leaf", "bmv2", "--spine", "bmv2", "--management", "127.0.0.1", "--host-rate", "1Mbps"),
}


@pytest.fixture
def init(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Init:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, text: str = "") -> Result:
        return CliRunner().invoke(cli, ["init", *arguments], input=text)

    return call


@pytest.mark.parametrize("options", RACKS.values(), ids=RACKS)
def test_what_is_written_is_planned_and_rendered(init: Init, options: tuple[str, ...]) -> None:
    made = init("rack", "--yes", *options)
    assert made.exit_code == 0
    plan, render, diff = (line.split()[1:] for line in made.output.splitlines() if " mltswitch " in line)
    for command in ([*plan, "--model", "paper"], render, render):
        assert CliRunner().invoke(cli, command, catch_exceptions=False).exit_code == 0
    assert diff == ["diff", "rack/plan.yaml", "-i", "rack"]
    switches = sum(path.is_dir() for path in Path("rack-configs").iterdir())
    assert switches == (6 if options is LARGE else 4)


def test_questions_are_asked_with_defaults(init: Init) -> None:
    asked = init("rack", "--leaf", "eos", text="pod-7\n3\n" + "\n" * len(QUESTIONS))
    assert asked.exit_code == 0, asked.output
    assert "How many leaves [2]: " in asked.output
    assert "Leaves: platform" not in asked.output
    fabric = yaml.safe_load(Path("rack/fabric.yaml").read_text(encoding="utf-8"))
    leaves = fabric["topology"]["leaf_spine"]["leaves"]
    assert (fabric["name"], leaves["count"], leaves["platform"]) == ("pod-7", 3, "eos")


def test_where_answers_end_nobody_can_be_asked(init: Init) -> None:
    refused = init("rack", text="pod-7\n").exception
    assert str(refused).startswith("nobody can be asked: standard input is no terminal. Add `--yes` to take")
    assert not Path("rack").exists()


def test_nothing_is_overwritten_unless_asked(init: Init) -> None:
    init("rack", "--yes")
    before = Path("rack/fabric.yaml").read_text(encoding="utf-8")
    again = init("rack", "--yes", "--leaves", "3")
    assert isinstance(again.exception, MltswitchError)
    assert str(again.exception) == "rack/fabric.yaml: exists already. --force replaces it"
    assert Path("rack/fabric.yaml").read_text(encoding="utf-8") == before
    assert init("rack", "--yes", "--leaves", "3", "--force").exit_code == 0
    assert "count: 3" in Path("rack/fabric.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--leaf", "ios"), "unknown platform 'ios'"),
        (("--leaf", "eos/z9"), "unknown hardware 'z9'"),
        (("--name", "a b"), "'a b' is no name"),
        (("--host-rate", "fast"), "'fast' is no rate"),
        (("--host-rate", "25Gpbs"), "Invalid value for '--host-rate': '25Gpbs' is not understood"),
        (("--buffer", "1Mb"), "Invalid value for '--buffer': '1Mb': b means bits"),
        (("--management", "here"), "--management: 'here' is no IPv4 address"),
        (("--management", "255.255.255.254"), "--management: 255.255.255.254 leaves no addresses for"),
        (("--spray", "p4"), "spine1: spraying.mode"),
        (("--leaf", "eos", "--hosts", "200"), "trident3 has 32 ports"),
        (("--host-rate", "400Gbps", "--leaf", "eos"), "400 Gbit/s, but trident3 has 100 Gbit/s there"),
        (("--leaf", "bmv2", "--spine", "bmv2"), "hosts.yaml: leaf1: ansible_host"),
    ],
)
def test_what_no_rack_can_be_is_refused_before_anything_is_written(
    init: Init, options: tuple[str, ...], what: str
) -> None:
    refused = init("rack", "--yes", *options)
    assert refused.exit_code != 0
    assert what in refused.output + str(refused.exception)
    assert not Path("rack").exists()
