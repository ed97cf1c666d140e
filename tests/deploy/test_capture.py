"""A capture of an emulated switch tells the reader all that the switch told, and nothing of the site."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
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
    # Text beyond ASCII, as JSON and C write it.
    r'"description": "\u6570\u636e\u4e2d\u5fc3"': '"description": "x1"',
    r'"state": "\u5f20\u4f1fb\nZ\u00fcrich7\tup", \345\274\240 &#25968;': r'"state": "x1\nx2\tup", x3 x4',
    # Addresses inside longer words.
    "host/198.51.100.7": "host/10.0.100.7",
    "to-198.51.100.7": "to-10.0.100.7",
    "Lab-Ethernet0-198.51.100.7": "x1-10.0.100.7",
    "x_198.51.100.7_198.51.100.9": "x110.0.100.7_10.0.100.9",
    "eth0.198.51.100.7 0.198.51.100.7 198.051.100.007": "x1 x2 x3",
    "7.100.51.198.in-addr.arpa": "x1",
    "::ffff:198.51.100.7": "::2",
    "64:ff9b::198.51.100.7": "2001:db8:1::1",
    "host/2001:4860::5 node:2001:4860::5 2001:4860::5: 12:30:45.7": (
        "host/2001:db8:1::1 x1:2001:db8:1::1 2001:db8:1::1: 12:30:45.7"
    ),
    "2001:4860:1:2 2001:4860::5z": "x1:x2:x3:x4 x1:x2::x5",
    # What stands behind a key, on its line and deeper below it.
    '"SNMP_COMMUNITY": {\n    "20231105": {\n    }\n},\n"queue": 7': (
        '"SNMP_COMMUNITY": {\n    "x1": {\n    }\n},\n"queue": 7'
    ),
    "community:\n  20231105: {}\n\n  7: {}\nqueue: 7": "community:\n  x1: {}\n\n  x2: {}\nqueue: 7",
    "community:\n- 20231105\nqueue: 7": "community:\n- x1\nqueue: 7",
    "description\n 55512345\nqueue 7": "description\n x1\nqueue 7",
    "authPassword 12345678": "authPassword x1",
    "SharedSecret 87654321": "x1Secret x2",
    "radius_passkey 123456": "x1passkey x2",
    "auth_pass 1234": "auth_pass x1",
    "SNMPCommunity 1234": "SNMPCommunity x1",
    "pin 1234": "pin x1",
    '"sn": "10203040"': '"sn": "x1"',
    '"deployment_id": "4711"': '"deployment_id": "x1"',
    "target:64512:100": "target:x1:x2",
    "authorization 1234567": "authorization x1",
    "User Priority   7": "x1 Priority   7",
    # Known words with a number are names of others; ports and their ranges are not.
    '"building-7", "server-12", "queue-12"': '"x1", "x2", "x3"',
    '"neighbor": "server"': '"neighbor": "x1"',
    "swp1-8 TC-3": "swp1-8 TC-3",
    # MAC addresses in other notations.
    "mac 001e73000000 0:1e:73:0:0:0 001e-7300-0000 00-1e-73-00-00-00": (
        "mac 020000000001 02:00:00:00:00:01 0200-0000-0001 02-00-00-00-00-01"
    ),
}


@pytest.mark.parametrize("line", CASES)
def test_what_is_not_known_is_renamed(line: str) -> None:
    redactor = Redactor()
    redactor.reserve([line])
    assert redactor.redacted(line, known_words("eos")) == CASES[line]


def test_release_and_model_stay_where_they_stand_alone() -> None:
    text = "ip route 3.4.3.71 3.4.3.7\n13.4.3.7 fred-S5248-corp\nversion 3.4.3.7, S5248"
    assert Redactor().redacted(text, known_words("sonic"), ("3.4.3.7", "S5248")) == (
        "ip route 10.0.3.71 10.0.3.7\n10.1.3.7 x1\nversion 3.4.3.7, S5248"
    )
    three = Redactor().redacted("version 5.10.0 address 5.10.0.7", frozenset(), ("5.10.0",))
    assert three == "x1 5.10.0 x2 10.0.0.7"


def test_names_of_the_fabric_are_renamed_also_where_they_are_known_words() -> None:
    redactor = Redactor()
    redactor.force(("Server", "", "10203040"))
    text = "queue server SERVER/7 server.example 10203040"
    assert redactor.redacted(text, known_words("eos") | {"server"}) == "queue x1 x2/7 x1.x3 x4"


def test_names_of_plan_and_inventory_are_renamed_also_where_they_look_like_our_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Talker:
        def ask_all(self, questions: Sequence[str]) -> dict[str, str]:
            return dict.fromkeys(questions, "queue mlt-9 mlt-host")

    monkeypatch.setattr("mltswitch.deploy.capture.reached", lambda *_: nullcontext(Talker()))
    with served(tmp_path / "switch", "eos", KINDS["eos"]("leaf1", 8), name="mlt-9") as rack:
        asked = capture(plan_of("eos"), rack)
    assert asked.capture is not None
    assert set(asked.capture.devices[0].answers.values()) == {"queue x1 mlt-host"}


V4 = st.ip_addresses(v=4).filter(lambda each: each.is_global and not each.is_multicast).map(str)
V6 = st.ip_addresses(v=6, network="2400::/6").filter(lambda each: int(each) >> 96 != 0x20010DB8)
MAC_JOINS = ((6, ":"), (6, "-"), (3, "."), (3, "-"), (1, ""))
MACS = st.builds(
    lambda number, shape: shape[1].join(
        f"{number:012x}"[start : start + 12 // shape[0]] for start in range(0, 12, 12 // shape[0])
    ),
    st.integers(0x03_0000000000, 0xFF_FFFFFFFFFE).filter(lambda each: not f"{each:012x}".endswith("0" * 6)),
    st.sampled_from(MAC_JOINS),
)
SHORT_MACS = st.tuples(*[st.integers(3, 255)] * 6).map(lambda each: ":".join(f"{octet:x}" for octet in each))
ESCAPED = st.text(st.characters(min_codepoint=0xC0, max_codepoint=0x1FFFF, categories=["L"]), min_size=1)
WORDS = st.text("bcdfghjkmnpqrtvwz", min_size=8, max_size=12).map("zq{}".format)
TEXTS = st.one_of(
    V4,
    V6.map(str),
    V6.map(lambda each: each.exploded),
    MACS,
    SHORT_MACS,
    MACS.map(str.upper),
    ESCAPED.map(lambda each: json.dumps(each)[1:-1]),
    WORDS,
)
NUMBERS = st.integers(10**5, 10**9 - 1).map(str)
AROUND = st.tuples(
    st.sampled_from(("", "host/", "to-", "x_", "node:", "_", "Ethernet0|", "Lab-Ethernet0-", "(", "5/", "é")),
    st.sampled_from(("", "/24", ",", ".", "_x", ":", "-eth0", " up", ")", "|0", ".example.org", r"\n7")),
)
LINES = (
    '  "Ethernet0": {{"alias": "{}", "mtu": "9100"}},',
    "ip route 0.0.0.0/0 {} 7",
    "   description {}",
    "{}",
)
BELOW = ('"SNMP_COMMUNITY": {{\n    "{}": {{', "username:\n- {}: 7", "authKey {}", "community\n\n  queue {}")


@given(st.lists(st.tuples(TEXTS, AROUND, st.sampled_from(LINES + BELOW)), min_size=1, max_size=6))
def test_no_text_of_the_site_is_left(placed: list[tuple[str, tuple[str, str], str]]) -> None:
    _nothing_is_left(placed)


@given(st.lists(st.tuples(NUMBERS, st.just(("", "")), st.sampled_from(BELOW)), min_size=1, max_size=6))
def test_no_number_behind_a_key_is_left(placed: list[tuple[str, tuple[str, str], str]]) -> None:
    _nothing_is_left(placed)


def _nothing_is_left(placed: list[tuple[str, tuple[str, str], str]]) -> None:
    text = "\n".join(line.format(before + secret + after) for secret, (before, after), line in placed)
    redactor = Redactor()
    redactor.reserve([text])
    redacted = redactor.redacted(text, known_words("sonic"))
    assert [secret for secret, _, _ in placed if secret in redacted] == []


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


def test_answers_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mltswitch.deploy.capture.MAXIMUM_CHARACTERS", 100)
    with served(tmp_path / "switch", "eos", KINDS["eos"]("leaf1", 8)) as rack:
        asked = capture(plan_of("eos"), rack)
    assert asked.capture is None
    [report] = asked.report.devices
    assert report.status is Status.FAILED
    assert "characters (expected at most 100)" in report.error
