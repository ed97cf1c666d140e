"""`mltswitch agent paths`: paths and the setup of hosts, as text and as JSON."""

import json
from ipaddress import IPv6Network
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mltswitch.cli.agent import paths
from mltswitch.documents import dump_yaml
from mltswitch.errors import UserInputError
from mltswitch.plan import Plan, sealed
from tests.targets.test_entropy import with_mode


@pytest.fixture
def plan_file(tmp_path: Path, lab_plan: Plan) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(dump_yaml(lab_plan))
    return file


def invoke(plan_file: Path, *arguments: str, source: str = "host1", destination: str = "host3") -> Result:
    options = ["--plan", str(plan_file), "--from", source, "--to", destination, *arguments]
    return CliRunner().invoke(paths, options, standalone_mode=False)


def test_a_table_of_paths(plan_file: Path) -> None:
    lines = [line.split() for line in invoke(plan_file).output.splitlines()]
    assert ["1", "spine2", "10.102.0.1", "10.102.0.65", "destination", "address"] in lines


def test_json_for_programs(plan_file: Path) -> None:
    document = json.loads(invoke(plan_file, "--json").output)
    ends = [{"source": f"10.10{n}.0.1", "destination": f"10.10{n}.0.65"} for n in (1, 2)]
    paths = [{"number": n, "name": f"spine{n + 1}", **ends[n]} for n in (0, 1)]
    assert document == {"mode": "alias", "from": "host1", "to": "host3", "paths": paths}
    both = json.loads(invoke(plan_file, "--json", "--setup").output)
    assert set(both["setup"]) == {"host1", "host3"}
    assert both["setup"]["host1"][0] == "ip addr replace 10.101.0.1/32 dev eth0"


def test_setup_is_a_script_for_both_hosts(plan_file: Path) -> None:
    lines = invoke(plan_file, "--setup").output.splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        "# on host1, once, from root:",
        "# on host3, once, from root:",
    ]
    assert all(line.startswith(("#", "ip addr replace ", "ip route replace ")) for line in lines)
    assert "ip addr replace 10.102.0.65/32 dev eth0" in lines


def test_source_ports(tmp_path: Path, lab_plan: Plan) -> None:
    file = tmp_path / "entropy.yaml"
    file.write_text(dump_yaml(with_mode(lab_plan, "entropy")))
    document = json.loads(invoke(file, "--json", "--source-ports", "3", "--first-source-port", "5000").output)
    assert [path["source_port"] for path in document["paths"]] == [5000, 5001, 5002]
    assert "UDP source port 61015" in invoke(file).output


def test_source_routes(tmp_path: Path, lab_plan: Plan) -> None:
    file = tmp_path / "p4.yaml"
    file.write_text(dump_yaml(with_mode(lab_plan, "p4")))
    assert [path["egress_ports"] for path in json.loads(invoke(file, "--json").output)["paths"]] == [
        [3, 2, 1],
        [4, 2, 1],
    ]
    assert "egress ports 4, 2, 1" in invoke(file).output
    assert "CAP_NET_RAW" in invoke(file, "--setup").output


def test_segment_lists(tmp_path: Path, lab_plan: Plan) -> None:
    plan = with_mode(lab_plan, "srv6")
    segments = {"segments": IPv6Network("fd00:6d6c::/32")}
    addressing = plan.fabric.addressing.model_copy(update=segments)
    fabric = plan.fabric.model_copy(update={"addressing": addressing})
    file = tmp_path / "srv6.yaml"
    file.write_text(dump_yaml(sealed(plan.model_copy(update={"fabric": fabric}))))
    assert "segments fd00:6d6c:2::, fd00:6d6c:2002:1::102 (route of the host)" in invoke(file).output
    assert "(header of the socket)" in invoke(file, "--sticky").output
    [first, _] = json.loads(invoke(file, "--json").output)["paths"]
    assert (first["segments"], first["is_sticky"]) == (["fd00:6d6c:1::", "fd00:6d6c:2002:1::101"], False)
    assert invoke(file, "--setup").output.count("encap seg6 mode inline segs") == 4
    assert "encap" not in invoke(file, "--setup", "--sticky").output


@pytest.mark.parametrize(
    ("option", "mode"),
    [("--sticky", "srv6"), ("--source-ports=4", "entropy"), ("--first-source-port=5000", "entropy")],
)
def test_options_of_another_mode(plan_file: Path, option: str, mode: str) -> None:
    result = invoke(plan_file, option)
    assert isinstance(result.exception, UserInputError)
    name = option.partition("=")[0]
    expected = f"{name}: is of the spray mode {mode} (expected nothing: the plan's is alias)"
    assert str(result.exception) == expected


@pytest.mark.parametrize("option", ["--source-ports=0", "--source-ports=65", "--first-source-port=65500"])
def test_numbers_out_of_range(plan_file: Path, option: str) -> None:
    assert "not in the range" in str(invoke(plan_file, option).exception)
