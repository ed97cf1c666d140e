"""A capture of an emulated switch tells the reader all that the switch told, and nothing of the site."""

import json
from dataclasses import replace
from ipaddress import IPv4Network
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from mltswitch.cli import main
from mltswitch.deploy import Question, Status, connect, push
from mltswitch.deploy.capture import Capture, capture
from mltswitch.deploy.comparison import reached, read
from mltswitch.deploy.prepare import prepare
from mltswitch.deploy.redaction import Redactor, known_words
from mltswitch.documents import dump_yaml, load_document
from mltswitch.targets import PortState, SwitchState
from mltswitch.targets.state import differences
from switchsim import KINDS, DropBeforeLine
from tests.deploy.emulated import plan_of, served


def settings(state: SwitchState) -> list[PortState]:
    """The ports but for texts that quote others' settings, in which names are renamed."""
    return [replace(port, unexpected=()) for port in state.ports]


@pytest.mark.parametrize("platform", KINDS)
def test_redacted_answers_say_what_the_answers_said(platform: str, tmp_path: Path) -> None:
    plan, switch = plan_of(platform), KINDS[platform]("leaf1", 8)
    with served(tmp_path / "switch", platform, switch) as rack:
        [job] = prepare(plan, rack, None)[0]
        for number in range(2):  # as delivered, and with the plan
            asked = capture(plan, rack)
            assert [(each.status, each.notes) for each in asked.report.devices] == [(Status.OK, ())]
            assert asked.capture is not None
            path = tmp_path / f"{number}.yaml"
            path.write_text(dump_yaml(asked.capture))
            [device] = load_document(path, Capture).devices
            assert tuple(device.answers) == job.target.queries(device.wanted_state())
            with reached(connect, job) as session:
                raw = read(session, job)
            now = device.read()
            assert len(differences(device.wanted_state(), now.state)) == len(
                differences(job.fitted.state, raw.state)
            )
            assert settings(now.state) == settings(raw.state)
            text = path.read_text()
            for secret in ("leaf1", "EMU", str(plan.fabric.addressing.hosts).rpartition(".")[0], "127.0.0.1"):
                assert secret not in text.replace("mltswitch/capture", ""), secret
            push(plan, rack, accept=[*Question])
        assert differences(device.wanted_state(), now.state) == ()


CASES = {
    # What a switch may print → what is left of it for a reader of EOS.
    "hostname acme-core-01": "hostname x1",
    "username anna secret sha512 $6$abcdef$Zz9": "username x1 x2 x3 $x4$x5$x6",
    "enable password 12345678": "enable password x1",
    "   key 7 0822455D0A16": "   key x1 x2",
    "snmp-server community public ro": "snmp-server x1 x2 x3",
    "router bgp 65001": "x1 bgp x2",
    "   description uplink, circuit 4711": "   description x1, x2 x3",
    '"bgp_asn": "65100",': '"bgp_asn": "x1",',
    "interface Ethernet31/1": "interface Ethernet31/1",
    "   ip address 172.16.9.1/30": "   ip address 10.0.9.1/30",
    "ip route 172.16.0.0/16 172.17.0.2": "ip route 10.0.0.0/16 10.1.0.2",
    "ip route 0.0.0.0/0 8.8.8.8": "ip route 0.0.0.0/0 10.0.8.8",
    "mask 255.255.255.0": "mask 255.255.255.0",
    "   ipv6 address 2001:4860:1:2::1/64": "   ipv6 address 2001:db8:1:2::/64",
    '"systemMacAddress": "00:1c:73:aa:bb:cc"': '"systemMacAddress": "02:00:00:00:00:01"',
    "mac 001c.73aa.bbcc": "mac 0200.0000.0001",
    '"serialNumber": "SSJ17115599"': '"serialNumber": "x1"',
    "uptime 12:30:45, 3 users": "x1 12:30:45, 3 x2",
    "weight 9876543210123": "weight x1",
    "speed 100000000000": "speed 100000000000",
    "motto: Zürich § Genève": "x1: x2 ? x3",
    "configure session mltswitch-7-1a2b3c4d-1700000000-anna-jump1": "configure session x1",
}


@pytest.mark.parametrize("line", CASES)
def test_what_is_not_known_is_renamed(line: str) -> None:
    redactor = Redactor()
    redactor.reserve([line])
    assert redactor.redacted(line, known_words("eos")) == CASES[line]


@given(st.text(st.characters(codec="utf-8"), max_size=200))
def test_no_word_that_nobody_knows_is_left(text: str) -> None:
    site = f"{text} zq9Xsite {text}\npassword {text}zq9Xsite\n"
    assert "zq9Xsite" not in Redactor().redacted(site, known_words("eos"))


@given(
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.integers(8, 32)).map(
            lambda pair: IPv4Network((pair[0] >> (32 - pair[1]) << (32 - pair[1]), pair[1]))
        ),
        min_size=1,
        max_size=8,
        unique=True,
    )
)
def test_prefixes_stay_prefixes_and_lie_in_each_other_as_before(networks: list[IPv4Network]) -> None:
    text = " ".join(map(str, networks))
    redactor = Redactor()
    redactor.reserve([text])
    renamed = [IPv4Network(each) for each in redactor.redacted(text, frozenset()).split(" ")]
    for one, new_one in zip(networks, renamed, strict=True):
        for other, new_other in zip(networks, renamed, strict=True):
            assert one.subnet_of(other) == new_one.subnet_of(new_other)


def test_the_command_writes_one_document_and_fails_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("eos")
    (tmp_path / "plan.yaml").write_text(dump_yaml(plan))

    def run(*options: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["capture", str(tmp_path / "plan.yaml"), *options])
        printed = capsys.readouterr()
        assert isinstance(end.value.code, int)
        return end.value.code, printed.out, printed.err

    output = tmp_path / "capture.yaml"
    for number, faults in enumerate((None, DropBeforeLine(pattern="show version", times=9))):
        folder = tmp_path / str(number)
        with served(folder, "eos", KINDS["eos"]("leaf1", 8), faults) as rack:
            [device] = rack.devices
            variables = {
                "ansible_host": device.address,
                "ansible_port": device.port,
                "ansible_user": device.user,
                "ansible_ssh_private_key_file": "id",
                "mltswitch_known_hosts_file": "known_hosts",
                "mltswitch_platform": "eos",
            }
            (folder / "hosts.yaml").write_text(yaml.safe_dump({"all": {"hosts": {"leaf1": variables}}}))
            told = run("leaf1", "-i", str(folder / "hosts.yaml"), "-o", str(output), "--json")
        if faults is None:
            code, out, _ = told
            assert (code, json.loads(out)["file"]) == (0, str(output))
            assert load_document(output, Capture).devices[0].release == "4.31.5M-emulator"
            output.unlink()
        else:
            code, out, err = told
            assert (code, out) == (4, "")
            assert len(err.strip().splitlines()) == 1
            assert "no switch answered, so nothing is written: leaf1 (" in err
            assert not output.exists()
    both = run("leaf1", "--limit", "leaf1", "-i", str(tmp_path / "0" / "hosts.yaml"), "-o", str(output))
    assert both[0] == 2
    assert "--limit: stands beside names of devices" in both[2]
