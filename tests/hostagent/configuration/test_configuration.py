"""From a configuration file to settings: what the plan says, what the file says, and what neither may say."""

import copy
import re
from datetime import UTC, datetime
from ipaddress import IPv6Network
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.documents import dump_yaml, validate
from mltswitch.errors import MltswitchError, UserInputError
from mltswitch.hostagent.configuration import (
    AgentConfiguration,
    AgentDocument,
    configured,
    load_configuration,
    parse_endpoint,
)
from mltswitch.hostagent.control.keys import make_keys
from mltswitch.hostagent.control.security import Plaintext
from mltswitch.hostagent.control.sockets import Endpoint
from mltswitch.hostagent.control.tls import TlsIdentity
from mltswitch.hostagent.spraying.modes import BySegments, BySourceRoute
from mltswitch.hostagent.spraying.settings import Policy
from mltswitch.hostagent.tcp.settings import TcpSettings
from mltswitch.hostagent.transport.planned_rate import rate_settings
from mltswitch.hostagent.transport.settings import Transport
from mltswitch.plan import Plan, sealed
from mltswitch.wire import AGENT_PORT
from tests.targets.test_entropy import with_mode

RACK: dict[str, Any] = {
    "name": "host1",
    "plaintext": True,
    "listen": "10.1.0.1",
    "addresses": ["10.1.1.1", "10.1.2.1"],
    "line_rate": "25Gbps",
    "queue": "200kB",
    "mtu_bytes": 9000,
    "classes": {"control_dscp": 40, "gradient_dscp": [34, 36], "layers": 4},
    "peers": {"host2": "10.1.0.2:7000"},
}


def made(tmp_path: Path, **fields: object) -> AgentConfiguration:
    file = tmp_path / "agent.yaml"
    file.write_text(yaml.safe_dump(fields))
    return load_configuration(file)


@pytest.fixture
def folder(tmp_path: Path, lab_plan: Plan) -> Path:
    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    return tmp_path


def test_two_lines_suffice_with_a_plan(folder: Path, lab_plan: Plan) -> None:
    found = made(folder, name="host3", plan="plan.yaml")
    settings_ = found.settings
    host = next(entry for entry in lab_plan.topology.hosts if entry.name == "host3")
    assert settings_.name == "host3"
    assert settings_.addresses == tuple(str(alias) for _, alias in host.aliases)
    assert settings_.listen == Endpoint(str(host.address), AGENT_PORT)
    assert settings_.payload_bytes == 1500 - 28
    assert settings_.control_dscp == 40
    assert settings_.rate == rate_settings(lab_plan, "host3")
    assert settings_.data_port == AGENT_PORT
    assert settings_.security == Plaintext(beyond_loopback=False)
    assert found.burst_packets == lab_plan.paths.burst_packets
    assert set(found.peers) == {entry.name for entry in lab_plan.topology.hosts} - {"host3"}
    assert found.peer("host1") == Endpoint(str(lab_plan.topology.hosts[0].address), AGENT_PORT)
    assert found.dscp(0) == 34
    assert found.dscp(traffic_class="gradient-1") == 36


def test_layers_have_names_with_the_profile(folder: Path) -> None:
    found = made(folder, name="host1", plan="plan.yaml", profile="resnet50")
    assert found.classes.layer_number("fc") == found.classes.layer_number("fc.weight") > 0
    assert found.dscp("conv1") == 34
    with pytest.raises(UserInputError, match="vgg16"):
        made(folder, name="host1", plan="plan.yaml", profile="vgg16")


def test_the_file_goes_before_the_plan(folder: Path) -> None:
    found = made(
        folder,
        name="host1",
        plan="plan.yaml",
        listen="127.0.0.1:0",
        addresses=["127.0.0.1"],
        mtu_bytes=9000,
        burst_packets=16,
        data_port=0,
        peers={"host2": "127.0.0.2:9"},
        spraying={"policy": "least-loss"},
        buffer="1MiB",
        expected_peers=3,
        authenticate=True,
        catch_reuse=True,
        base_round_trip_seconds=0.001,
    )
    settings_ = found.settings
    assert settings_.listen == Endpoint("127.0.0.1", 0)
    assert settings_.addresses == ("127.0.0.1",)
    assert (settings_.payload_bytes, settings_.data_port, settings_.buffer_bytes) == (8972, 0, 1 << 20)
    assert settings_.spraying.policy is Policy.LEAST_LOSS
    assert (settings_.expected_peers, settings_.authenticate, settings_.catch_reuse) == (3, True, True)
    assert settings_.rate.base_round_trip_ns == 1_000_000
    assert found.burst_packets == 16
    assert found.peer("host2") == Endpoint("127.0.0.2", 9)


def test_source_ports_are_sockets(tmp_path: Path, lab_plan: Plan) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(with_mode(lab_plan, "entropy")))
    spraying = {"source_ports": 3, "first_source_port": 5000}
    found = made(tmp_path, name="host1", plan="plan.yaml", spraying=spraying).settings
    assert found.per_path_sockets
    assert found.data_port == 5000
    assert found.addresses == (str(lab_plan.topology.hosts[0].address),) * 3
    with pytest.raises(UserInputError, match=r"agent\.yaml:1: data_port: the plan's paths are UDP source"):
        made(tmp_path, name="host1", plan="plan.yaml", spraying=spraying, data_port=7)
    with pytest.raises(
        UserInputError, match=r"agent\.yaml: over TCP there is no spraying"
    ):  # its port is none
        made(tmp_path, name="host1", plan="plan.yaml", data_port=7, transport="tcp")


def test_peers_by_name(tmp_path: Path) -> None:
    peers = {"host2": "localhost:7", "host3": "host3.invalid"}
    found = made(tmp_path, **(RACK | {"peers": peers}))
    assert found.peer("host2").port == 7
    assert found.peer("host2").ip.is_loopback
    assert found.endpoint("localhost:9", where="--to x").port == 9
    with pytest.raises(
        UserInputError, match=r"agent\.yaml:\d+: peers\.host3: 'host3\.invalid' is no IP address"
    ):
        found.peer("host3")
    with pytest.raises(UserInputError, match=r"--to x: 'a b' is neither"):
        found.endpoint("a b", where="--to x")


def test_a_segment_header_takes_its_part_of_the_payload(tmp_path: Path, lab_plan: Plan) -> None:
    plan = with_mode(lab_plan, "srv6")
    addressing = plan.fabric.addressing.model_copy(update={"segments": IPv6Network("fd00:6d6c::/32")})
    fabric = plan.fabric.model_copy(update={"addressing": addressing})
    (tmp_path / "plan.yaml").write_text(dump_yaml(sealed(plan.model_copy(update={"fabric": fabric}))))
    found = made(tmp_path, name="host1", plan="plan.yaml").settings
    assert found.addresses == ("fd00:6d6c:2001:1::101", "fd00:6d6c:2001:1::102")
    assert found.payload_bytes == 1500 - 40 - 40 - 8
    sticky = made(tmp_path, name="host1", plan="plan.yaml", spraying={"sticky": True}).settings
    assert sticky.spray == BySegments((("fd00:6d6c:1::",), ("fd00:6d6c:2::",)))
    assert sticky.payload_bytes == found.payload_bytes


def test_all_of_it_without_a_plan(tmp_path: Path) -> None:
    found = made(tmp_path, **RACK)
    settings_ = found.settings
    assert settings_.listen == Endpoint("10.1.0.1", AGENT_PORT)
    assert settings_.addresses == ("10.1.1.1", "10.1.2.1")
    assert settings_.payload_bytes == 8972
    assert settings_.rate.cap_bps == 25e9
    assert settings_.security == Plaintext(beyond_loopback=True)
    assert [found.dscp(layer) for layer in range(4)] == [34, 34, 36, 36]
    assert found.dscp(traffic_class="gradient-1") == 36
    assert found.peer("host2") == Endpoint("10.1.0.2", 7000)
    with pytest.raises(UserInputError, match=r"peer host9: nobody says where it listens .*host2"):
        found.peer("host9")


def test_a_laptop_needs_a_name_alone(tmp_path: Path) -> None:
    found = made(tmp_path, name="one")
    assert found.settings.addresses == ("127.0.0.1",)
    assert found.settings.listen is None
    assert found.dscp(layer=99) == 34
    with pytest.raises(UserInputError, match="name: this host has no name"):
        made(tmp_path)


def test_keys_name_the_host(tmp_path: Path) -> None:
    make_keys(tmp_path / "job", {"host7": []}, days=1, authority_days=2, now=datetime.now(UTC))
    found = made(tmp_path, keys="job/hosts/host7")
    assert found.settings.name == "host7"
    assert isinstance(found.settings.security, TlsIdentity)
    with pytest.raises(UserInputError, match=r"agent.yaml:2: name: 'host8' is not the name .*expected host7"):
        made(tmp_path, keys="job/hosts/host7", name="host8")
    with pytest.raises(UserInputError, match=r"agent.yaml:1: keys: .*no such folder"):
        made(tmp_path, keys="job/hosts/host9")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"schema": "mltswitch/plan/v2"},
            "schema: 'mltswitch/plan/v2' is not understood (expected mltswitch/agent/v1)",
        ),
        ({"nome": "x"}, "nome: there is no such field (expected name)"),
        ({"name": "a b"}, "name: 'a b' is not a host name"),
        ({"name": "10.0.0.1"}, "name: '10.0.0.1' is an address"),
        ({"plan": ""}, "plan: is empty (expected 1 or more)"),
        ({"plan": "none.yaml"}, "line_rate is the plan's"),
        ({"profile": "resnet50"}, "profile names the layers of a plan"),
        ({"keys": "job"}, "keys and plaintext: true exclude each other"),
        ({"plaintext": "yes"}, "plaintext: 'yes' is text (expected true or false)"),
        ({"listen": "host1"}, "listen: 'host1' is no IP address"),
        ({"listen": "10.0.0.1:70000"}, "listen: '10.0.0.1:70000' has no port of 0 to 65535"),
        ({"listen": 7}, "listen: is no address"),
        ({"addresses": []}, "addresses: is empty (expected 1 or more)"),
        (
            {"addresses": ["host3"]},
            "addresses.0: 'host3' is no IP address; data has addresses, names are looked up for the control",
        ),
        ({"addresses": ["10.0.0.3", "fd00::1"]}, "addresses are all IPv4 or all IPv6"),
        ({"data_port": 65536}, "data_port: 65536 is too large (expected less than 65536)"),
        (
            {"peers": {"host2": "10.0.0.300"}},
            "peers.host2: '10.0.0.300' is neither an IP address nor a host name",
        ),
        ({"peers": {"host2": 7}}, "peers.host2: is no address or name"),
        ({"peers": {"..": "10.0.0.1"}}, "is not a host name"),
        ({"expected_peers": 0}, "expected_peers: 0 is too small (expected 1 or more)"),
        ({"line_rate": "25GBps"}, "line_rate: '25GBps': B means bytes"),
        ({"line_rate": 0}, "line_rate: 0 is too small (expected more than 0)"),
        ({"line_rate": None}, "line_rate: is missing"),
        ({"queue": "12Mb"}, "queue: '12Mb': b means bits"),
        ({"queue": -1}, "queue: -1 is too small (expected 0 or more)"),
        ({"base_round_trip_seconds": 0}, "base_round_trip_seconds: 0 is too small (expected more than 0)"),
        ({"mtu_bytes": 100}, "mtu_bytes: 100 is too small (expected 576 or more)"),
        ({"mtu_bytes": "1500"}, "mtu_bytes: '1500' is text (expected a whole number)"),
        ({"authenticate": 1}, "authenticate: 1 is a whole number (expected true or false)"),
        ({"burst_packets": 65}, "burst_packets: 65 is too large (expected 64 or less)"),
        ({"spraying": {"policy": "best"}}, "spraying.policy: 'best' is not understood (expected round-robin"),
        (
            {"spraying": {"source_ports": 65}},
            "spraying.source_ports: 65 is too large (expected 64 or less)",
        ),
        ({"classes": None}, "classes: is missing"),
        (
            {"classes": {"control_dscp": 48, "gradient_dscp": [34]}},
            "classes.control_dscp: 48 belongs to",
        ),
        ({"classes": {"control_dscp": 40, "gradient_dscp": [40]}}, "classes: a code point stands for two"),
        (
            {"classes": {"control_dscp": 40, "gradient_dscp": []}},
            "classes.gradient_dscp: is empty (expected 1 or more)",
        ),
        ({"buffer": "2 GiB"}, "buffer: '2 GiB' is too large (expected less than 2147483648)"),
        ({"buffer": "1kB"}, "buffer: '1kB' is too small (expected 65536 or more)"),
        ({"transport": "udp"}, "transport: 'udp' is not understood (expected mlt or tcp)"),
        ({"tcp": {"streams": 33}}, "tcp.streams: 33 is too large (expected 32 or less)"),
        (
            {"tcp": {"congestion_control": "a b"}},
            "tcp.congestion_control: 'a b' is no name that the kernel has",
        ),
        ({"total_rate": 0}, "total_rate: 0 is too small (expected more than 0)"),
        ({"two_queues": 0}, "two_queues: 0 is too small (expected 1 or more)"),
        ({"catch_reuse": "often"}, "catch_reuse: 'often' is text (expected true or false)"),
    ],
)
def test_each_field_refuses_what_it_cannot_be(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    with pytest.raises(UserInputError) as problem:
        made(tmp_path, **(RACK | change))
    text = str(problem.value)
    assert text.startswith(f"{tmp_path}/agent.yaml")
    assert line in text
    assert "\n" not in text


def test_what_is_asked_for_later_has_its_line_too(tmp_path: Path) -> None:
    """Dots of a peer's name are no levels of the file."""
    file = tmp_path / "agent.yaml"
    file.write_text(
        "name: one\npeers:\n  a: 10.0.0.1\n  a.b: b.invalid\n"
        "classes:\n  control_dscp: 40\n  gradient_dscp: [34, 36]\n"
    )
    found = load_configuration(file)
    with pytest.raises(UserInputError, match=r"agent\.yaml:4: peers\.a\.b: 'b\.invalid' is no IP address"):
        found.peer("a.b")
    with pytest.raises(UserInputError, match=r"agent\.yaml:5: classes\.layers: which of 2 classes carries"):
        found.dscp(1)


def test_layers_without_a_number_of_layers(tmp_path: Path) -> None:
    found = made(tmp_path, **(RACK | {"classes": {"control_dscp": 40, "gradient_dscp": [34, 36]}}))
    with pytest.raises(UserInputError, match=r"classes.layers: which of 2 classes"):
        found.dscp(1)
    with pytest.raises(UserInputError, match="Names need a plan"):
        found.dscp("conv1")
    with pytest.raises(UserInputError, match=r"expected gradient-0, gradient-1"):
        found.dscp(traffic_class="control")
    with pytest.raises(UserInputError, match="there is no layer 4"):
        made(tmp_path, **RACK).dscp(4)


def test_a_host_that_the_plan_has_not(folder: Path) -> None:
    with pytest.raises(UserInputError, match="host77"):
        made(folder, name="host77", plan="plan.yaml")
    with pytest.raises(UserInputError, match=r"nothing.yaml: cannot be read"):
        made(folder, name="host1", plan="nothing.yaml")


def test_source_routes(tmp_path: Path, lab_plan: Plan) -> None:
    (tmp_path / "plan.yaml").write_text(dump_yaml(with_mode(lab_plan, "p4")))
    found = made(tmp_path, name="host1", plan="plan.yaml").settings
    assert isinstance(found.spray, BySourceRoute)
    assert found.spray.routes["host3"] == ((3, 2, 1), (4, 2, 1))
    assert found.payload_bytes == 1500 - 28 - found.spray.header_bytes


def test_tcp_and_the_rate_of_all_peers(tmp_path: Path) -> None:
    found = made(
        tmp_path, name="one", transport="tcp", tcp={"streams": 2, "congestion_control": "bbr"}
    ).settings
    assert found.transport is Transport.TCP
    assert found.data_port == 0  # not that of the control channel
    assert found.tcp == TcpSettings(streams=2, congestion_control="bbr")
    assert made(tmp_path, name="one", total_rate="5Gbps").settings.total_rate_bps == 5e9


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"tcp": {"streams": 2}}, "tcp: means nothing over mlt (expected transport: tcp, or no such field)"),
        ({"transport": "mlt", "tcp": {}}, "tcp: means nothing over mlt"),
        (
            {"transport": "tcp", "total_rate": "5Gbps"},
            "total_rate: means nothing over tcp (expected transport: mlt, or no such field)",
        ),
        ({"transport": "tcp", "spraying": {"policy": "random"}}, "spraying: means nothing over tcp"),
        ({"transport": "tcp", "buffer": "1MiB"}, "buffer: means nothing over tcp"),
        ({"transport": "tcp", "burst_packets": 4}, "burst_packets: means nothing over tcp"),
        ({"transport": "tcp", "expected_peers": 2}, "expected_peers: means nothing over tcp"),
        (
            {"transport": "tcp", "base_round_trip_seconds": 0.001},
            "base_round_trip_seconds: means nothing over tcp",
        ),
    ],
)
def test_what_is_of_another_transport_is_refused(tmp_path: Path, fields: dict[str, Any], line: str) -> None:
    with pytest.raises(UserInputError) as problem:
        made(tmp_path, name="one", **fields)
    found = re.fullmatch(rf"{tmp_path}/agent\.yaml:(\d+): ({re.escape(line)}.*)", str(problem.value))
    assert found
    there = (tmp_path / "agent.yaml").read_text().splitlines()[int(found[1]) - 1]
    assert there.startswith(f"{line.partition(':')[0]}:")


def test_what_tells_of_the_network_stands_with_either_transport(tmp_path: Path) -> None:
    assert made(tmp_path, **RACK, transport="tcp").settings.transport is Transport.TCP


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", ": is empty (expected fields, one a line, such as `name: host1`)"),
        ("- name: one\n", ": is a list (expected fields, one a line"),
        ("one\n", ": is text (expected fields, one a line"),
        ("name: one\n\nmtu_bytes: 5\n", ":3: mtu_bytes: 5 is too small (expected 576 or more)"),
        ("name: one\nmtu_bites: 1500\n", ":2: mtu_bites: there is no such field (expected mtu_bytes)"),
        ("name: one\ntcp:\n  steams: 2\n", ":3: tcp.steams: there is no such field (expected streams)"),
        (
            "tcp:\n  zzz: 2\n",
            ":2: tcp.zzz: there is no such field (expected streams, congestion_control)",
        ),
        ("peers:\n  one: 127.0.0.1\n  two: 7\n", ":3: peers.two: is no address or name"),
        ("addresses:\n- 127.0.0.1\n- host3\n", ":3: addresses.1: 'host3' is no IP address"),
        ("addresses: 127.0.0.1\n", ":1: addresses: '127.0.0.1' is text (expected a list)"),
        ("peers:\n- one\n", ":1: peers: is a list (expected fields of its own)"),
        ("\nclasses: 7\n", ":2: classes: 7 is a whole number (expected fields of its own)"),
        ("name: one\nclasses:\n  control_dscp: 3\n", ":2: classes.gradient_dscp: is missing"),
        ("base_round_trip_seconds: .inf\n", ":1: base_round_trip_seconds: inf is a number (expected one"),
        ("name: one\nplan:\n- 2020-01-01\n", ":2: plan: is a list (expected text)"),
        ("plan: 2020-01-01\n", ":1: plan: is a date (expected text)"),
        ("authenticate:\n", ":1: authenticate: is empty (expected true or false)"),
        ("name: true\n", ":1: name: is true (expected text)"),
        ("7: 7\n", ":1: 7: 7 is no name of a field"),
        (
            "transport: udp\nnome: one\n",
            ":2: nome: there is no such field (expected name). 1 more field is wrong",
        ),
        ("name: one\nname: two\n", ":2:1: the key 'name' stands twice"),
        ("name: one\n\tmtu_bytes: 1500\n", ":2:1: a tab (expected spaces before a field)"),
        ("name: one: two\n", ":1:10: no field begins here (expected fields below each other, and quotes"),
        ("name: [one\n", ":2:1: a bracket is not closed (expected ])"),
        ("tcp: {streams: 2\n", ":2:1: a brace is not closed (expected })"),
        ('name: "one\n', ":2:1: a quotation mark is not closed"),
        ("name: @one\n", ":1:7: no value begins with this character (expected quotes around the value)"),
        ("name: one\nmtu_bytes\n", ":3:1: neither a field nor a value (expected fields, one a line"),
        ("tcp:\n    streams: 2\n  x: 3\n", ":3:3: no field begins here (expected fields of one part equally"),
        ("name: - one\n", ":1:7: no list begins here (expected a list in brackets, or below its field)"),
        ("addresses:\n- ::1\nx\n- ::2\n", ":4:1: neither a field nor a value"),
        ("addresses:\n  - ::1\n  x: 2\n", ":3:3: no entry of the list (expected `- ` before each entry"),
        ("name: one\nplan: o\x07ne\n", ":2: a control character (expected text)"),
        ('name: one\nplan: "a\\nb"\n', ":2: plan: has a line end, a control character or one that"),
        ("name: one\n? ~\n: 3\n", ":2: ~: ~ is no name of a field (expected text)"),
        ("tcp:\n  2020-01-01: 3\n", ":2: tcp.2020-01-01: 2020-01-01 is no name of a field"),
        ("true: 3\n", ":1: true: true is no name of a field"),
        ("? [a]\n: 3\n", ":1:3: a list or fields instead of a name (expected fields, one a line"),
        ("  name: one\nplan: x\n", ":2:1: no field begins here (expected fields of one part equally"),
        ("name: one\n---\nname: two\n", ":2:1: a second file begins here"),
        ("tcp: {streams: 1e3}\n", ":1: tcp.streams: '1e3' is no whole number (expected digits alone)"),
        ("schema: 2020-01-01\n", ":1: schema: 2020-01-01 is not understood (expected mltswitch/agent/v1)"),
        (
            "name: one\nplan: 2020-99-99\n",
            ":2: a date that no calendar has (expected quotes around the value)",
        ),
        ("peers:\n  one: [a,\n    0x_]\n", ":3: a number without digits (expected quotes around the value)"),
        ("name: one\nplaintext: true\nkeys: x\n", ":3: keys and plaintext: true exclude each other"),
        ("name: one\nprofile: resnet50\n", ":2: profile names the layers of a plan, and there is no plan"),
        ("plan: x\nqueue: 1kB\n", ":2: queue is the plan's; leave out one of them"),
        ("name: one\naddresses: [127.0.0.1, '::1']\n", ":2: addresses are all IPv4 or all IPv6"),
        ("name: one\n\nkeys: none\n", ":3: keys: "),
        (
            "name: one\naddresses: [224.0.0.1]\nline_rate: 1Gbps\n"
            "classes: {control_dscp: 0, gradient_dscp: [0]}\n",
            ":2: addresses: '224.0.0.1' means several hosts",
        ),
        ("name: one\ntwo_queues: 1\n", ":2: two_queues: one gradient class (expected 2 or more)"),
        ("name: one\nlisten: 10.0.0.1\n", ": line_rate: is missing. Beyond loopback an agent needs a plan"),
        (
            "name: one\nline_rate: 1Gbps\nclasses: {control_dscp: 0, gradient_dscp: [0]}\nlisten: 0.0.0.0\n",
            ":4: listen: 0.0.0.0 is every address of this host, and data needs one (expected one of",
        ),
        ("{\n", ":2:1: no value begins here"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_in_its_own_words(tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    with pytest.raises(UserInputError) as problem:
        load_configuration(file)
    shown = str(problem.value)
    assert shown.startswith(f"{file}{line}")
    assert not any(word in shown.lower() for word in ("input", "tuple", "mapping", "token", "document"))


def test_a_document_is_checked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, checked = AgentDocument.model_validate, list[object]()

    def validate_(data: object) -> AgentDocument:
        checked.append(data)
        return real(data)

    monkeypatch.setattr(AgentDocument, "model_validate", validate_)
    made(tmp_path, name="one", buffer="2147483647B")
    assert len(checked) == 1


def test_two_queues(folder: Path, lab_plan: Plan) -> None:
    planned = made(folder, name="host1", plan="plan.yaml", two_queues=2).settings.two_queues
    assert planned is not None
    gradients = [entry.dscp[0] for entry in lab_plan.gradient_classes]
    assert (planned.high, planned.low) == (gradients[0], gradients[-1])
    listed = made(folder, **RACK, two_queues=1).settings.two_queues
    assert listed is not None
    assert (listed.high, listed.low) == (34, 36)
    with pytest.raises(UserInputError, match="one gradient class"):
        made(folder, name="one", two_queues=1)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.1", ("10.0.0.1", AGENT_PORT)),
        ("10.0.0.1:7", ("10.0.0.1", 7)),
        ("fd00::1", ("fd00::1", AGENT_PORT)),
        ("[fd00::1]", ("fd00::1", AGENT_PORT)),
        ("[fd00::1]:7", ("fd00::1", 7)),
    ],
)
def test_endpoints(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text) == Endpoint(*endpoint)


@settings(max_examples=100)
@given(st.text(alphabet="0123456789abf:.[]%x ", max_size=24))
def test_an_endpoint_is_one_or_none(text: str) -> None:
    try:
        found = parse_endpoint(text)
    except ValueError:
        return
    assert parse_endpoint(str(found)) == found


FIELDS = list(AgentDocument.model_json_schema(by_alias=True)["properties"])
VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-10, 70_000)
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.lists(st.integers(0, 63) | st.sampled_from(["127.0.0.1", "::1"]), max_size=3)
    | st.sampled_from(["127.0.0.1", "::1", "25Gbps", "64kB", {}, {"a": "127.0.0.1"}, 10**30])
)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(field=st.sampled_from(FIELDS), value=VALUES)
def test_any_value_anywhere_is_a_configuration_or_one_line(tmp_path: Path, field: str, value: Any) -> None:
    data = copy.deepcopy(RACK) | {field: value}
    try:
        document = validate(data, AgentDocument, where="agent.yaml")
        found = configured(document, folder=tmp_path, where="agent.yaml")
    except MltswitchError as error:
        assert "\n" not in str(error)
        return
    assert found.settings.addresses


def test_one_wrong_entry_is_one_wrong_field(tmp_path: Path) -> None:
    (tmp_path / "agent.yaml").write_text("addresses: [127.0.0.300]\n")
    with pytest.raises(UserInputError, match=r"addresses\.0: ") as found:
        load_configuration(tmp_path / "agent.yaml")
    assert "more field" not in str(found.value)
