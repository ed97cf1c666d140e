"""From a file, and the plan that it may name, to settings in which nothing is open."""

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
from mltswitch.hostagent.config import AgentConfig
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.security.keys import make_keys
from mltswitch.hostagent.spraying.shares import Policy
from mltswitch.hostagent.transport.tcp_frames import TcpSettings
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
PLANNED: dict[str, Any] = {"name": "host1", "plan": "plan.yaml", "plaintext": True}


def loaded(folder: Path, **fields: object) -> AgentConfig:
    file = folder / "agent.yaml"
    file.write_text(yaml.safe_dump(fields, sort_keys=False))
    return AgentConfig.load(file)


@pytest.fixture
def folder(tmp_path: Path, lab_plan: Plan) -> Path:
    (tmp_path / "plan.yaml").write_text(dump_yaml(lab_plan))
    return tmp_path


def in_mode(folder: Path, plan: Plan, mode: str, **fields: object) -> AgentConfig:
    """Host1 of the plan in another spray mode."""
    changed = with_mode(plan, mode)
    if mode == "srv6":
        addressing = changed.fabric.addressing.model_copy(update={"segments": IPv6Network("fd00:6d6c::/32")})
        fabric = changed.fabric.model_copy(update={"addressing": addressing})
        changed = sealed(changed.model_copy(update={"fabric": fabric}))
    (folder / "plan.yaml").write_text(dump_yaml(changed))
    return loaded(folder, **PLANNED, **fields)


def test_a_plan_says_the_rest(folder: Path, lab_plan: Plan) -> None:
    found = loaded(folder, **(PLANNED | {"name": "host3"}))
    host = next(entry for entry in lab_plan.topology.hosts if entry.name == "host3")
    assert (found.name, found.plan) == ("host3", None)
    assert found.addresses == tuple(str(alias) for _, alias in host.aliases)
    assert [found.path_socket(path) for path in range(len(found.addresses))] == [
        (address, 0) for address in found.addresses
    ]
    assert found.listen_at == Endpoint(str(host.address), AGENT_PORT)
    assert (found.datagram_bytes, found.control_dscp) == (1500 - 28, 40)
    assert found.burst_packets == lab_plan.paths.burst_packets
    assert set(found.peers) == {entry.name for entry in lab_plan.topology.hosts} - {"host3"}
    assert found.endpoint("host1") == Endpoint(str(lab_plan.topology.hosts[0].address), AGENT_PORT)
    assert (found.dscp(0), found.dscp_of_class("gradient-1")) == (34, 36)
    leaf = lab_plan.topology.switch(host.leaf)
    port = lab_plan.port_profile(leaf, leaf.port(host.leaf_port))
    thresholds = [
        queue.ecn_threshold_bytes or 0 for queue in port.queues if "gradient" in queue.traffic_class
    ]
    assert (found.line_rate_bps, found.queue_bytes) == (port.rate_bps, max(thresholds))
    share = lab_plan.gradient_classes[0].rate_cap_share
    assert share is not None
    assert found.rate_options()["cap_bps"] == pytest.approx(port.rate_bps * share)


def test_layers_have_names_with_the_profile(folder: Path) -> None:
    found = loaded(folder, **PLANNED, profile="resnet50")
    assert found.layer_number("fc") == found.layer_number("fc.weight") > 0
    assert found.dscp("conv1") == 34
    with pytest.raises(UserInputError, match=r"agent\.yaml:4: profile: 'vgg16' is not 'resnet50'"):
        loaded(folder, **PLANNED, profile="vgg16")


def test_the_file_goes_before_the_plan_and_options_before_the_file(folder: Path) -> None:
    given_: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "addresses": ["127.0.0.1"],
        "mtu_bytes": 9000,
        "burst_packets": 16,
        "data_port": 7,
        "peers": {"host2": "127.0.0.2:9"},
        "spraying": {"policy": "least-loss"},
        "buffer": "1MiB",
        "authenticate": True,
    }
    found = loaded(folder, **PLANNED, **given_)
    assert (found.listen_at, found.path_socket(0)) == (Endpoint("127.0.0.1", 0), ("127.0.0.1", 7))
    assert (found.datagram_bytes, found.buffer_bytes, found.burst_packets) == (8972, 1 << 20, 16)
    assert found.spraying.policy is Policy.LEAST_LOSS
    assert found.authenticate
    assert found.endpoint("host2") == Endpoint("127.0.0.2", 9)
    assert "host3" in found.peers
    changed = AgentConfig.load(folder / "agent.yaml", {"mtu_bytes": 1500, "name": "host2"})
    assert (changed.datagram_bytes, changed.name, changed.burst_packets) == (1472, "host2", 16)
    assert AgentConfig.load(None, {"name": "one", "buffer": "64KiB"}).buffer_bytes == 65_536


def test_paths_by_source_port(folder: Path, lab_plan: Plan) -> None:
    spraying = {"source_ports": 3, "first_source_port": 5000}
    found = in_mode(folder, lab_plan, "entropy", spraying=spraying)
    address = str(lab_plan.topology.hosts[0].address)
    assert [found.path_socket(path) for path in range(len(found.addresses))] == [
        (address, port) for port in (5000, 5001, 5002)
    ]
    assert len(in_mode(folder, lab_plan, "entropy").addresses) == 16
    with pytest.raises(UserInputError, match=r"agent\.yaml:4: data_port: paths of the mode entropy"):
        in_mode(folder, lab_plan, "entropy", data_port=7)
    by_hand = loaded(folder, spraying={"mode": "entropy", "source_ports": 2})
    assert [by_hand.path_socket(path) for path in range(len(by_hand.addresses))] == [
        ("127.0.0.1", 61_000),
        ("127.0.0.1", 61_001),
    ]


def test_a_segment_header_takes_its_part_of_the_payload(folder: Path, lab_plan: Plan) -> None:
    found = in_mode(folder, lab_plan, "srv6")
    assert found.addresses == ("fd00:6d6c:2001:1::101", "fd00:6d6c:2001:1::102")
    assert found.datagram_bytes == 1500 - 40 - 40 - 8
    assert found.segment_header(0) == b""
    sticky = in_mode(folder, lab_plan, "srv6", spraying={"sticky": True})
    assert sticky.datagram_bytes == found.datagram_bytes
    header = sticky.segment_header(1)  # RFC 8754, section 2: the destination's place comes first
    assert header[:8] == bytes((0, 4, 4, 1, 1, 0, 0, 0))
    assert header[8:] == bytes(16) + IPv6Network("fd00:6d6c:2::/48").network_address.packed


def test_source_routes(folder: Path, lab_plan: Plan) -> None:
    found = in_mode(folder, lab_plan, "p4")
    assert found.spraying.routes["host3"] == ((3, 2, 1), (4, 2, 1))
    assert found.spraying.routes["host2"] == ((2,),)
    assert found.addresses == (str(lab_plan.topology.hosts[0].address),) * 2
    assert found.datagram_bytes == 1500 - 28 - 10
    assert (found.spraying.interface, found.spraying.gateway) == ("eth0", "02:4d:0a:0a:00:05")


def test_where_the_switches_choose_there_is_one_path(folder: Path, lab_plan: Plan) -> None:
    found = in_mode(folder, lab_plan, "packet")
    assert (len(found.addresses), found.spraying.mode) == (1, "alias")
    with pytest.raises(UserInputError, match=r"spraying\.mode: the plan's is alias \(expected nothing\)"):
        in_mode(folder, lab_plan, "packet", spraying={"mode": "entropy"})


def test_all_of_it_without_a_plan(tmp_path: Path) -> None:
    found = loaded(tmp_path, **RACK)
    assert found.listen_at == Endpoint("10.1.0.1", AGENT_PORT)
    assert found.addresses == ("10.1.1.1", "10.1.2.1")
    assert found.datagram_bytes == 8972
    assert [found.dscp(layer) for layer in range(4)] == [34, 34, 36, 36]
    assert found.endpoint("host2") == Endpoint("10.1.0.2", 7000)
    assert found.endpoint("host9", "10.1.0.9") == Endpoint("10.1.0.9", AGENT_PORT)
    with pytest.raises(UserInputError, match=r"peer host9: nobody says where it listens .*host2"):
        found.endpoint("host9")


def test_a_laptop_needs_no_file() -> None:
    found = AgentConfig().resolved()
    assert found.name
    assert found.addresses == ("127.0.0.1",)
    assert found.listen_at == Endpoint("127.0.0.1", AGENT_PORT)
    assert (found.dscp(99), found.datagram_bytes, found.authenticate) == (34, 65_000, False)
    assert found.identity() is None


def test_what_is_resolved_stays_as_it_is(folder: Path, lab_plan: Plan) -> None:
    configs = [
        loaded(folder, **PLANNED),
        loaded(folder, **RACK, tcp={"streams": 2}),
        AgentConfig().resolved(),
    ]
    configs += [in_mode(folder, lab_plan, mode) for mode in ("entropy", "srv6", "p4", "packet")]
    for config in configs:
        assert config.resolved() == config
        again = AgentConfig.model_validate(config.model_dump(by_alias=True))
        assert again.resolved().model_dump() == config.model_dump()


def test_keys_name_the_host_and_tag_its_datagrams(tmp_path: Path) -> None:
    make_keys(tmp_path / "job", {"host7": []}, days=1, authority_days=2, now=datetime.now(UTC))
    found = loaded(tmp_path, keys="job/hosts/host7")
    identity = found.identity()
    assert identity is not None
    assert found.name == identity.name == "host7"
    assert found.authenticate
    assert found.keys == str(tmp_path / "job/hosts/host7")
    assert not loaded(tmp_path, keys="job/hosts/host7", authenticate=False).authenticate
    with pytest.raises(
        UserInputError, match=r"agent\.yaml:2: name: 'host8' is not the name .*expected host7"
    ):
        loaded(tmp_path, keys="job/hosts/host7", name="host8")
    with pytest.raises(UserInputError, match=r"host9/\S+: cannot be read"):
        loaded(tmp_path, keys="job/hosts/host9")


def test_thresholds_follow_from_a_known_queue(tmp_path: Path) -> None:
    """2 MB leave in 1.6 ms at 10 Gbit/s, where noise outweighs a quarter of it, and in 16 ms at 1 Gbit/s."""
    known = RACK | {"line_rate": "10Gbps", "queue": 2_000_000}
    rate = loaded(tmp_path, **known).rate_options(window_bytes=1 << 20)
    assert (rate["cap_bps"], rate["increase_bps"], rate["window_bytes"]) == (10e9, 0.1e9, 1 << 20)
    assert (rate["low_ns"], rate["high_ns"]) == (500_000, 1_050_000)
    slow = loaded(tmp_path, **(known | {"line_rate": "1Gbps"})).rate_options()
    assert (slow["low_ns"], slow["high_ns"]) == (4_000_000, 10_000_000)
    rate = loaded(tmp_path, **(known | {"queue": None})).rate_options()
    assert (rate["low_ns"], rate["high_ns"]) == (0, 0)


def test_the_important_bound_is_safe_by_default() -> None:
    defaults = AgentConfig().defaults
    assert [defaults.important_bound(loss) for loss in (0, 0.005, 0.1, 1)] == [0, 0.005, 0.01, 0.01]
    chosen = AgentConfig.model_validate({"defaults": {"important_loss_bound": 0.2}}).defaults
    assert chosen.important_bound(0.5) == 0.2


def test_sections_of_transports(tmp_path: Path) -> None:
    found = loaded(tmp_path, transport="tcp", tcp={"streams": 2}, channels={"bulk": "mlt"})
    assert found.section("tcp") == TcpSettings(streams=2)
    assert AgentConfig().section("tcp") == TcpSettings()
    assert (found.transport, found.channels) == ("tcp", {"bulk": "mlt"})
    schema = AgentConfig.model_json_schema(by_alias=True)
    assert "streams" in schema["properties"]["tcp"]["properties"]
    assert schema["additionalProperties"] is False


def test_two_queues(tmp_path: Path) -> None:
    queues = loaded(tmp_path, **RACK, two_queues=1).two_queues_of_classes()
    assert queues is not None
    assert (queues.high, queues.low) == (34, 36)
    assert loaded(tmp_path, **RACK).two_queues_of_classes() is None


def test_peers_by_name(tmp_path: Path) -> None:
    found = loaded(tmp_path, **(RACK | {"peers": {"host2": "localhost:7", "a.b": "host3.invalid"}}))
    assert found.endpoint("host2").ip.is_loopback
    with pytest.raises(UserInputError, match=r"agent\.yaml: peers\.a\.b: 'host3\.invalid' is no IP address"):
        found.endpoint("a.b")
    with pytest.raises(UserInputError, match=r"peer x: 'a b' is neither"):
        found.endpoint("x", "a b")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"schema": "mltswitch/plan/v2"}, "is a plan document, not an agent document"),
        ({"schema": "mltswitch/agent/v0"}, "schema: must be 'mltswitch/agent/v1'"),
        ({"nome": "x"}, "nome: is no field that is known here, did you mean name?"),
        ({"expected_peers": 3}, "expected_peers: is no field that is known here"),
        ({"name": "10.0.0.1"}, "name: '10.0.0.1' is an address"),
        ({"plan": "none.yaml"}, "line_rate: is the plan's"),
        ({"profile": "resnet50"}, "profile: names the layers of a plan"),
        ({"keys": "job"}, "plaintext: keys and plaintext: true exclude each other"),
        ({"listen": "host1"}, "listen: 'host1' is no IP address"),
        ({"listen": 7}, "listen: must be text"),
        ({"addresses": ["host3"]}, "addresses[0]: 'host3' is no IP address"),
        ({"addresses": ["224.0.0.1"]}, "addresses[0]: '224.0.0.1' means several"),
        ({"addresses": ["10.0.0.3", "fd00::1"]}, "addresses: are all IPv4 or all IPv6"),
        ({"peers": {"host2": "10.0.0.300"}}, "peers.host2: '10.0.0.300' is neither"),
        ({"peers": {"..": "10.0.0.1"}}, "'..' is not a host name"),
        ({"line_rate": "25GBps"}, "line_rate: '25GBps': B means bytes"),
        ({"line_rate": None}, "line_rate: is missing. Beyond loopback an agent needs a plan"),
        ({"mtu_bytes": "1500"}, "mtu_bytes: must be a whole number"),
        ({"spraying": {"mode": "entropy"}}, "addresses: paths of the mode entropy have one address"),
        (
            {"spraying": {"mode": "srv6", "segments": [["fd00::1"]] * 2}},
            "spraying.segments: expected one for each of addresses, which are IPv6",
        ),
        (
            {"spraying": {"mode": "p4", "interface": "eth0"}, "addresses": ["10.1.1.1"]},
            "spraying.routes: expected with interface and gateway",
        ),
        ({"spraying": {"gateway": "03:00:00:00:00:01"}}, "spraying.gateway: must match"),
        ({"classes": None}, "classes: is missing"),
        ({"classes": {"control_dscp": 48, "gradient_dscp": [34]}}, "classes.control_dscp: 48 belongs to"),
        ({"classes": {"control_dscp": 40, "gradient_dscp": [40]}}, "classes: a code point stands for two"),
        (
            {"classes": {"control_dscp": 40, "gradient_dscp": [34]}, "two_queues": 1},
            "two_queues: there is one gradient class",
        ),
        ({"transport": "udp"}, "transport: 'udp' is no transport, write one of ltp, mlt, tcp"),
        ({"channels": {"bulk": "udp"}}, "channels.bulk: 'udp' is no transport"),
        ({"channels": {"default": "tcp"}}, "channels: the transport of default is the field transport"),
        ({"tcp": {"streams": 33}}, "tcp.streams: must be at most 32"),
        ({"tcp": {"steams": 1}}, "tcp.steams: is no field that is known here"),
        ({"tcp": 7}, "tcp: must be a mapping of fields"),
        ({"defaults": {"importance": "best"}}, "defaults.importance: 'best' is no policy"),
        ({"plaintext": False}, "keys: plain text does not leave this machine, and 10.1.0.1 does"),
    ],
)
def test_each_field_refuses_what_it_cannot_be(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    with pytest.raises(UserInputError) as problem:
        loaded(tmp_path, **(RACK | change))
    found = re.match(rf"{tmp_path}/agent\.yaml(?::(\d+))?: .*{re.escape(line)}", str(problem.value))
    assert found, str(problem.value)
    if found[1]:
        there = (tmp_path / "agent.yaml").read_text().splitlines()[int(found[1]) - 1].strip()
        parts = re.split(r"[.\[]", line.partition(":")[0])
        assert there.partition(":")[0] in parts or there[0] == "-" or "'" in parts[0]


def test_a_host_that_the_plan_has_not(folder: Path) -> None:
    with pytest.raises(UserInputError, match=r"agent\.yaml:1: name: no host 'host77' in fabric"):
        loaded(folder, **(PLANNED | {"name": "host77"}))
    with pytest.raises(UserInputError, match=r"Say which host of the plan this is"):
        loaded(folder, plan="plan.yaml", plaintext=True)
    with pytest.raises(UserInputError, match=r"nothing\.yaml: cannot be read"):
        loaded(folder, name="host1", plan="nothing.yaml")
    with pytest.raises(UserInputError, match=r"listen: 0\.0\.0\.0:18515 is every address of this host"):
        loaded(folder, listen="0.0.0.0", plaintext=True)  # noqa: S104  (refused)


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-10, 70_000)
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.lists(st.integers(0, 63) | st.sampled_from(["127.0.0.1", "::1"]), max_size=3)
    | st.sampled_from(["127.0.0.1", "::1", "25Gbps", "64kB", {}, {"a": "127.0.0.1"}, {"mode": "p4"}, 10**30])
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), value=VALUES)
def test_any_value_anywhere_is_a_configuration_or_one_line(
    tmp_path: Path, data: st.DataObject, value: Any
) -> None:
    field = data.draw(st.sampled_from(sorted(AgentConfig.model_json_schema(by_alias=True)["properties"])))
    try:
        found = validate(copy.deepcopy(RACK) | {field: value}, AgentConfig, where="agent.yaml")
        assert found.resolved(tmp_path).addresses
    except MltswitchError as error:
        assert "\n" not in str(error)
