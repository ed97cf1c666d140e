"""Exported networks of vendors' images: held against the tools' schema, and run with emulators in them."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from mltswitch.cli import main
from mltswitch.cli.variables import PREFIX, VARIABLES
from mltswitch.deploy.capture import Capture
from mltswitch.deploy.session import refusal
from mltswitch.documents import dump_yaml, load_document
from mltswitch.inventory import load_inventory
from mltswitch.plan import Fabric, Plan, load_plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import Step, hardware_capabilities
from tests.cli.test_variables import takers
from tests.plan.examples import SMALL

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "tests" / "data" / "containerlab" / "clab.schema.json"
STANDIN = Path(__file__).with_name("containerlab_standin.py")
SCRIPT_SECONDS = 600.0
HARDWARE = {"eos": "trident3", "sonic": "sn2700", "cumulus": "sn2700", "dell-sonic": "trident3"}


def plan_of(leaves: Mapping[str, tuple[str, str, str]], spine: tuple[str, tuple[str, ...]]) -> Plan:
    """One spine; of each leaf its platform, its port to the spine and that to its host."""
    platform, down = spine
    switches = [{"name": "spine1", "role": "spine", "platform": platform}]
    switches += [{"name": name, "role": "leaf", "platform": each[0]} for name, each in leaves.items()]
    for switch in switches:
        if switch["platform"] in HARDWARE:
            switch["hardware"] = HARDWARE[switch["platform"]]
    links: list[dict[str, Any]] = []
    for number, (name, (_, up, to_host)) in enumerate(leaves.items()):
        links.append({"a": f"{name}:{up}", "b": f"spine1:{down[number]}"})
        if up.endswith("s0"):
            links[-1]["breakout_a"] = 4
        links.append({"a": f"{name}:{to_host}", "b": f"host{number + 1}:eth0"})
    hosts = [{"name": f"host{number + 1}"} for number in range(len(leaves))]
    document = SMALL | {
        "topology": {"switches": switches, "hosts": hosts, "links": links},
        "addressing": SMALL["addressing"] | {"alias": {"spine1": "10.101.0.0/16"}},
        "classes": SMALL["classes"] | {"gradients": {"dscp": [34, 36]}},
        "ports": {"rate": "10Gbps", "buffer": "600kB"},
    }
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


LEAVES = {
    "leaf1": ("eos", "Ethernet31/1", "Ethernet1/1"),
    "leaf2": ("sonic", "Ethernet120", "Ethernet4"),
    "leaf3": ("cumulus", "swp31", "swp1"),
}
SPINE = ("cumulus", ("swp1", "swp2", "swp3", "swp4", "swp5"))
EVERY = LEAVES | {
    "leaf4": ("dell-sonic", "Eth1/31", "Eth1/2"),
    "leaf5": ("linux", "enp2s0f0", "enp1s0f0"),
}


@cache
def three() -> Plan:
    return plan_of(LEAVES, SPINE)


def exported(tool: str, plan: Plan, folder: Path, *options: str) -> tuple[int, Path]:
    """The exit code of the command, and the folder that it writes."""
    (folder / "given.yaml").write_text(dump_yaml(plan))
    with pytest.raises(SystemExit) as end:
        main(["lab", "export", tool, str(folder / "given.yaml"), "-o", str(folder / "out"), *options])
    assert isinstance(end.value.code, int)
    return end.value.code, folder / "out"


def topology(folder: Path, name: str = "topology.clab.yaml") -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((folder / name).read_text())
    return document


@pytest.fixture(scope="module")
def schema() -> Callable[[Any], Any]:
    check: Callable[[Any], Any] = fastjsonschema.compile(json.loads(SCHEMA.read_text()))
    return check


def test_an_edited_file_is_replaced_by_force_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, folder = exported("containerlab", three(), tmp_path)
    assert code == 0
    edited = folder / "topology.clab.yaml"
    written = edited.read_text()
    assert exported("containerlab", three(), tmp_path)[0] == 0
    edited.write_text("mine\n")
    (folder / "verify.sh").unlink()
    assert exported("containerlab", three(), tmp_path)[0] == 2
    assert f"{edited}: says something else already. --force replaces it" in capsys.readouterr().err
    assert edited.read_text() == "mine\n"
    assert not (folder / "verify.sh").exists()
    assert exported("containerlab", three(), tmp_path, "--force")[0] == 0
    assert edited.read_text() == written


def test_topologies_are_what_containerlab_reads(tmp_path: Path, schema: Callable[[Any], Any]) -> None:
    code, folder = exported("containerlab", plan_of(EVERY, SPINE), tmp_path, "--image", "eos=lab/eos:1")
    assert code == 0
    document = topology(folder)
    schema(document)
    body = document["topology"]
    kinds = {name: node["kind"] for name, node in body["nodes"].items() if not name.startswith("host")}
    assert kinds == {
        "spine1": "nvidia_cumulusvx",
        "leaf1": "arista_ceos",
        "leaf2": "sonic-vm",
        "leaf3": "nvidia_cumulusvx",
        "leaf4": "dell_sonic",
        "leaf5": "linux",
    }
    assert body["kinds"]["arista_ceos"]["image"] == "${ARISTA_CEOS_IMAGE:=lab/eos:1}"
    assert [link["endpoints"] for link in body["links"]] == [
        ["spine1:swp1", "leaf1:eth31_1"],
        ["spine1:swp2", "leaf2:eth31"],
        ["spine1:swp3", "leaf3:swp31"],
        ["spine1:swp4", "leaf4:eth31"],
        ["spine1:swp5", "leaf5:enp2s0f0"],
        ["leaf1:eth1_1", "host1:eth1"],
        ["leaf2:eth2", "host2:eth1"],
        ["leaf3:swp1", "host3:eth1"],
        ["leaf4:eth2", "host4:eth1"],
        ["leaf5:enp1s0f0", "host5:eth1"],
    ]
    # containerlab gives addresses to cEOS alone; Linux gets them by commands.
    plan = load_plan(folder / "plan.yaml")
    port = plan.topology.switch("leaf1").port("Ethernet31/1")
    assert body["links"][0]["ipv4"] == ["", f"{port.address}/30"]
    assert sum("ipv4" in link for link in body["links"]) == 2
    port = plan.topology.switch("leaf5").port("enp2s0f0")
    assert f"ip address add {port.address}/30 dev enp2s0f0" in body["nodes"]["leaf5"]["exec"]
    document["topology"]["nodes"]["leaf1"]["kind"] = "nothing"
    with pytest.raises(fastjsonschema.JsonSchemaValueException):  # else the schema checks nothing
        schema(document)


def test_the_inventory_reaches_what_the_topology_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOS_PASSWORD", "hunter2")
    options = ("--json", "--kind", "sonic=sonic-vs", "--management", "192.0.2.0/24")
    code, folder = exported("containerlab", three(), tmp_path, *options)
    told = json.loads(capsys.readouterr().out)
    assert code == 0
    assert told["passwords"] == ["CUMULUS_PASSWORD", "EOS_PASSWORD", "SONIC_PASSWORD"]
    assert sorted(told["files"]) == sorted(str(path) for path in folder.rglob("*") if path.is_file())
    nodes = topology(folder)["topology"]["nodes"]
    assert nodes["leaf2"]["kind"] == "sonic-vs"
    devices = load_inventory(folder / "inventory").devices
    assert {each.name: each.address for each in devices} == {
        name: node["mgmt-ipv4"] for name, node in nodes.items() if not name.startswith("host")
    }
    assert {each.known_hosts_file for each in devices} == {folder / "inventory" / ".." / "known_hosts"}
    assert not [path for path in folder.rglob("*") if path.is_file() and "hunter2" in path.read_text()]


def test_netlab_calls_the_ports_as_the_plan_does(tmp_path: Path) -> None:
    """netlab 26.10 makes Ethernet31/1 with et31_1, Ethernet120 and swp31 of these numbers."""
    code, folder = exported("netlab", three(), tmp_path)
    assert code == 0
    document = topology(folder, "topology.yml")
    assert document["provider"] == "libvirt"  # the first of two has to be
    assert document["nodes"]["leaf1"] == {
        "device": "eos",
        "mgmt": {"ipv4": "172.20.77.12"},
        "image": "ceos:4.34.2F",
        "provider": "clab",
    }
    assert document["defaults"]["devices"]["eos"]["clab"]["interface"]["name"] == "et{ifindex}_1"
    found = [{node: end.get("ifindex") for node, end in link.items()} for link in document["links"]]
    assert found == [
        {"spine1": 1, "leaf1": 31},
        {"spine1": 2, "leaf2": 30},
        {"spine1": 3, "leaf3": 31},
        {"leaf1": 1, "host1": None},
        {"leaf2": 1, "host2": None},
        {"leaf3": 1, "host3": None},
    ]
    script = (folder / "verify.sh").read_text()
    assert "netlab up topology.yml" in script
    assert "@" not in re.sub(r"[\"']\$@|\$\*", "", script)


REFUSED = {
    "platform": ("containerlab", {"leaf1": ("onyx", "1/1", "1/2")}, (), "leaf1: no image is known"),
    "port": (
        "containerlab",
        {"leaf1": ("cumulus", "swp31s0", "swp1")},
        (),
        "leaf1:swp31s0: an image of kind",
    ),
    "eth0": ("containerlab", {"leaf1": ("linux", "eth1", "eth0")}, (), "leaf1:eth0: an image of kind linux"),
    "netlab": ("netlab", {"leaf1": ("dell-sonic", "Eth1/1", "Eth1/2")}, (), "leaf1: netlab has no device"),
    "lane": ("netlab", {"leaf1": ("eos", "Ethernet1/1", "Ethernet2/2")}, (), "leaf1:Ethernet2/2: netlab has"),
    "kind": ("containerlab", LEAVES, ("--kind", "eos=veos"), "--kind: eos has no image of kind 'veos'"),
    "image": ("containerlab", LEAVES, ("--image", "ios=x:1"), "--image: no image of 'ios' is known"),
    "shell": ("containerlab", LEAVES, ("--image", "eos=$(id)"), "is no PLATFORM=VALUE"),
    "room": ("containerlab", LEAVES, ("--management", "192.0.2.0/28"), "--management: 192.0.2.0/28 has room"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_image_stands_for_is_refused_by_name(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tool, leaves, options, said = REFUSED[case]
    code, folder = exported(tool, plan_of(leaves, SPINE), tmp_path, *options)
    told = capsys.readouterr().err.splitlines()
    assert code == 2
    assert len(told) == 1
    assert said in told[0]
    assert not folder.exists()


def shell(folder: Path, commands: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Commands in bash, with the stand-in for containerlab in front of all programs."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    for name, command in {"containerlab": str(STANDIN), "mltswitch": "-m mltswitch"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {command} "$@"\n')
        (programs / name).chmod(0o755)
    path = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}",
    }
    return subprocess.run(
        ["bash", "-e", "-c", commands],
        cwd=folder,
        env={**os.environ, **path, "BOOT_SECONDS": "0", **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=SCRIPT_SECONDS,
    )


def results(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["lab", "results", str(folder / "results"), "--json"])
    return json.loads(capsys.readouterr().out)


def blocks() -> list[str]:
    """The command blocks of the page, with passwords in the places that it leaves."""
    page = (ROOT / "docs" / "real-images.md").read_text(encoding="utf-8")
    found = re.findall(r"(?m)(?:^    .+\n)+", page)
    return [re.sub(r"(\w+)_PASSWORD=…", r"\1_PASSWORD=lab-\1", each) for each in found]


@pytest.mark.root
def test_the_page_takes_images_to_the_plan_and_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    road, captured = blocks()
    done = shell(tmp_path, road)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "images"
    found = results(folder, capsys)
    assert (found["is_good"], found["missing"], found["refusals"]) == (True, [], [])
    steps = {(each["step"], each["device"]): each["status"] for each in found["outcomes"]}
    names = ("spine1", "leaf1", "leaf2")
    for step, status in {
        "lines": "ok",
        "check": "would-change",
        "push": "changed",
        "verify": "ok",
        "rollback": "rolled-back",
    }.items():
        assert {name: steps[step, name] for name in names} == dict.fromkeys(names, status)
    devices = load_document(folder / "results" / "capture.yaml", Capture).devices
    assert [each.platform for each in devices] == ["eos", "sonic", "cumulus"]
    assert not (folder / "topology.clab.pid").exists()  # the network is gone again
    for path in folder.rglob("*"):
        assert not (path.is_file() and b"lab-EOS" in path.read_bytes()), path
    passwords = {f"{name}_PASSWORD": f"lab-{name}" for name in ("EOS", "SONIC", "CUMULUS")}
    topo = "--topo images/topology.clab.yaml"
    up, down = f"containerlab deploy --reconfigure {topo}", f"containerlab destroy --cleanup {topo}"
    done = shell(tmp_path, f"{up}\ntrap '{down}' EXIT\n{captured}", **passwords)
    assert done.returncode == 0, done.stdout + done.stderr
    [device] = load_document(tmp_path / "capture.yaml", Capture).devices
    assert {port.name for port in device.read().state.ports} == {"Ethernet1/1", "Ethernet2/1"}


def test_the_script_asks_for_passwords_and_spares_earlier_results(tmp_path: Path) -> None:
    code, folder = exported("containerlab", three(), tmp_path)
    assert code == 0
    passwords = {f"{name}_PASSWORD": "x" for name in ("EOS", "SONIC", "CUMULUS")}
    done = shell(tmp_path, "bash out/verify.sh", **passwords | {"SONIC_PASSWORD": ""})
    assert (done.returncode, done.stdout) == (2, "")
    assert "environment variable SONIC_PASSWORD is not set" in done.stderr
    (folder / "results").mkdir()
    done = shell(tmp_path, "bash out/verify.sh", **passwords)
    assert (done.returncode, done.stdout) == (2, "")
    assert "results is there already" in done.stderr


REPORTS: dict[str, dict[str, Any]] = {
    "push": {"device": "leaf1", "platform": "eos", "status": "failed", "error": ""},
    "verify": {"device": "leaf1", "platform": "eos", "status": "differs", "differences": [{}, {}]},
}


def test_results_tell_steps_that_failed_and_those_that_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = str(refusal([Step("qos map dscp 8 to traffic-class 1"), Step("x")], 0, "% Invalid input"))
    (tmp_path / "results").mkdir()
    for step, device in REPORTS.items():
        told = device | ({"error": f"leaf1 (192.0.2.1:22): {error}"} if step == "push" else {})
        (tmp_path / "results" / f"{step}.json").write_text(json.dumps({"devices": [told]}))
    (tmp_path / "results" / "lines.json").write_text("")
    (tmp_path / "results" / "lines.log").write_text("note: one\nmltswitch: leaf1: cannot be reached\n")
    found = results(tmp_path, capsys)
    assert not found["is_good"]
    assert found["missing"] == ["lines: mltswitch: leaf1: cannot be reached", "check: it left no report"]
    assert found["refusals"] == [
        {
            "device": "leaf1",
            "step": "push",
            "line": "qos map dscp 8 to traffic-class 1",
            "answer": "% Invalid input",
        }
    ]
    (tmp_path / "results" / "push.json").write_text("{}")
    with pytest.raises(SystemExit) as end:
        main(["lab", "results", str(tmp_path / "results")])
    assert end.value.code == 2
    assert "push.json: is no report: " in capsys.readouterr().err


@pytest.mark.parametrize("program", ["mltswitch", "containerlab"])
def test_the_script_heeds_no_choice_that_its_caller_made(program: str, tmp_path: Path) -> None:
    code, _ = exported("containerlab", three(), tmp_path)
    assert code == 0
    called = {"trust", "lab lines", "push", "verify", "capture", "rollback"}
    choices = {
        f"{PREFIX}{name}": "x" for name, by in takers().items() if VARIABLES[name].is_told and called & {*by}
    }
    assert choices.keys() >= {"MLTSWITCH_LIMIT", "MLTSWITCH_CONFIRM"}
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("mltswitch", "containerlab"):
        (programs / name).write_text(
            f'#!/bin/sh\necho "$*" >>"{tmp_path}/{name}"\nenv >>"{tmp_path}/{name}"\n'
        )
        (programs / name).chmod(0o755)
    passwords = {f"{name}_PASSWORD": "x" for name in ("EOS", "SONIC", "CUMULUS")}
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", **passwords, **choices}
    subprocess.run(["bash", str(tmp_path / "out" / "verify.sh")], env=environment, check=True)
    told = (tmp_path / program).read_text()
    assert "plan.yaml" in told or "topology" in told
    assert not [name for name in choices if f"{name}=" in told]


GOOD_RUN: dict[str, dict[str, str]] = {
    "lines": {"leaf1": "ok", "leaf2": "ok"},
    "check": {"leaf1": "would-change", "leaf2": "ok"},
    "push": {"leaf1": "changed", "leaf2": "ok"},
    "verify": {"leaf1": "ok", "leaf2": "ok"},
    "rollback": {"leaf1": "rolled-back"},
}
"""Step → device → status."""


@pytest.mark.parametrize(
    ("step", "instead", "missing"),
    [
        ("push", GOOD_RUN["push"], []),
        ("rollback", None, ["rollback: it left no report"]),
        ("rollback", {}, ["rollback: it left no report"]),
        ("rollback", {"leaf2": "ok"}, ["rollback: it tells nothing of leaf1"]),
        ("push", {}, ["push: it left no report"]),
        ("push", {"leaf1": "changed"}, ["push: it tells nothing of leaf2"]),
        ("verify", {"leaf2": "ok"}, ["verify: it tells nothing of leaf1"]),
        ("lines", {"leaf2": "ok"}, ["lines: it tells nothing of leaf1"]),
        ("check", None, ["check: it left no report"]),
    ],
)
def test_a_run_is_good_only_where_every_step_tells_of_every_device(
    step: str,
    instead: dict[str, str] | None,
    missing: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "results").mkdir()
    for name, devices in (GOOD_RUN | {step: instead}).items():
        if devices is not None:
            told = [{"device": device, "status": status} for device, status in devices.items()]
            (tmp_path / "results" / f"{name}.json").write_text(json.dumps({"devices": told}))
    found = results(tmp_path, capsys)
    assert (found["missing"], found["is_good"]) == (missing, not missing)


def test_where_no_switch_was_changed_nothing_is_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").mkdir()
    for step in ("lines", "check", "push", "verify"):
        document = {"devices": [{"device": "leaf1", "status": "ok"}]}
        (tmp_path / "results" / f"{step}.json").write_text(json.dumps(document))
    assert results(tmp_path, capsys)["is_good"]


@pytest.mark.parametrize("management", ["172.20.77.0/24", "10.0.0.128/25", "10.1.0.0/16"])
def test_netlab_numbers_behind_the_given_addresses(management: str, tmp_path: Path) -> None:
    code, folder = exported("netlab", three(), tmp_path, "--management", management)
    assert code == 0
    document = topology(folder, "topology.yml")
    network = ip_network(management)
    given = [ip_address(node["mgmt"]["ipv4"]) for node in document["nodes"].values()]
    start = network[document["addressing"]["mgmt"]["start"]]
    assert start == max(given) + 1
    assert {*given, start} <= {*network.hosts()}
