"""A real plan, the BMv2 target and a real simple_switch_grpc: push twice, verify after changes by hand."""

import dataclasses
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mltswitch.deploy import Status, change, diff, push, verify
from mltswitch.deploy.p4runtime import P4RuntimeSession
from mltswitch.errors import DeviceError
from mltswitch.inventory import Inventory, load_inventory
from mltswitch.p4.control import open_switch
from mltswitch.p4.program import shipped_program
from mltswitch.plan import Fabric, Plan
from mltswitch.planning import build_plan
from mltswitch.profile import resolve_profile
from mltswitch.targets import hardware_capabilities
from mltswitch.targets.bmv2 import TARGET
from mltswitch.targets.bmv2.ports import port_number
from tests.p4.switches import DEVICE_ID, RunningSwitch, running_switch
from tests.plan.examples import SMALL

pytestmark = pytest.mark.bmv2


def bmv2_plan(
    *, load: float = 0.9, mode: str = "alias", gradients: int | None = None, spines: int = 1
) -> Plan:
    """A fabric of one leaf, eth1 to its host and eth2 to the spine; of two leaves with more spines."""
    spine, leaf = {"count": spines, "platform": "bmv2"}, {"count": spines, "platform": "bmv2"}
    alias = {f"spine{number}": f"10.10{number}.0.0/16" for number in range(1, spines + 1)}
    document = SMALL | {
        "topology": {"leaf_spine": {"spines": spine, "leaves": leaf, "hosts_per_leaf": 1}},
        "addressing": SMALL["addressing"] | {"alias": alias},
        "ports": {"rate": "100Mbps", "buffer": "400kB", "shaped": True},
        "traffic": {"load": load},
        "spraying": {"mode": mode},
    }
    if gradients is not None:
        classes = SMALL["classes"]
        document["classes"] = classes | {"gradients": classes["gradients"] | {"queues": gradients}}
    return build_plan(
        resolve_profile("resnet50"), Fabric.model_validate(document), hardware_capabilities, "paper"
    )


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningSwitch]:
    with running_switch(tmp_path_factory.mktemp("bmv2")) as running:
        yield running


def rack_of(switch: RunningSwitch, folder: Path) -> Inventory:
    """As a user writes it: no user, no key, no known_hosts."""
    (folder / "hosts.yaml").write_text(
        "all:\n  vars: {mltswitch_platform: bmv2, mltswitch_thrift_port: 9090}\n"
        f"  hosts:\n    leaf1: {{ansible_host: '{switch.address}'}}\n",
        encoding="utf-8",
    )
    return load_inventory(folder / "hosts.yaml")


@pytest.fixture
def rack(switch: RunningSwitch, tmp_path: Path) -> Inventory:
    return rack_of(switch, tmp_path)


def enter(switch: RunningSwitch, *lines: str) -> None:
    with open_switch(switch.address, device_id=DEVICE_ID) as opened:
        opened.write(lines)


def entries(switch: RunningSwitch) -> tuple[str, ...]:
    with open_switch(switch.address, device_id=DEVICE_ID, primary=False) as opened:
        return opened.entries() + opened.meters()


def emptied(switch: RunningSwitch) -> None:
    with open_switch(switch.address, device_id=DEVICE_ID) as opened:
        opened.load(shipped_program())


def test_push_fills_an_empty_switch_and_changes_nothing_the_second_time(tmp_path: Path) -> None:
    with running_switch(tmp_path) as fresh:
        plan, rack = bmv2_plan(), rack_of(fresh, tmp_path)
        [unloaded] = verify(plan, rack).devices
        assert unloaded.status is Status.DIFFERS
        assert "it runs no program" in unloaded.notes
        assert [(d.port, d.field, d.found) for d in unloaded.differences][:2] == [
            ("eth1", "configuration", "absent"),
            ("eth2", "configuration", "absent"),
        ]
        report = push(plan, rack)
        [first] = report.devices
        assert (first.status, first.error) == (Status.CHANGED, "")
        assert "load_program" in first.change
        assert "shapes no port" in " ".join(first.shortfalls)
        assert "nothing survives a restart" in " ".join(first.notes)
        assert "none" in change(report.change).backup(first.device).answers.values()
        before = entries(fresh)
        [second] = push(plan, rack).devices
        assert (second.status, second.change) == (Status.OK, "")
        assert entries(fresh) == before
        assert verify(plan, rack).exit_code == 0
        # What is read is what was rendered, but for comments, the names of ports and the queues' depth.
        fitted = TARGET.fit_to_hardware(plan, "leaf1")
        rendered = TARGET.render(fitted.state, fitted.capabilities)["mltswitch.txt"].splitlines()
        assert set(before) == {line for line in rendered if line.startswith(("table_add", "meter_set_rates"))}


@pytest.mark.parametrize(
    ("options", "queues"), [(("--drop-port", "511"), 1), (("--priority-queues", "4"), 4)]
)
def test_a_switch_without_the_plans_queues_is_refused(
    tmp_path: Path, options: tuple[str, ...], queues: int
) -> None:
    with running_switch(tmp_path, *options) as fresh:
        plan, rack = bmv2_plan(), rack_of(fresh, tmp_path)
        [refused] = push(plan, rack).devices
        assert refused.status is Status.FAILED
        assert f"has {queues} priority queue" in refused.error
        assert "-- --priority-queues 8" in refused.error
        with open_switch(fresh.address, device_id=DEVICE_ID, primary=False) as opened:
            assert opened.cookie() is None
        [seen] = verify(plan, rack).devices
        assert any(f"has {queues} priority queue" in each.found for each in seen.differences)


def test_an_mtu_below_the_plans_is_noted(switch: RunningSwitch, rack: Inventory) -> None:
    assert push(bmv2_plan(), rack).exit_code == 0
    inside = ["nsenter", "-t", str(switch.process.pid), "-n", "ip", "link", "set", "eth2", "mtu"]
    subprocess.run([*inside, "1400"], check=True)
    [found] = verify(bmv2_plan(), rack).devices
    subprocess.run([*inside, "1500"], check=True)
    assert found.status is Status.OK
    assert [note for note in found.notes if "MTU" in note] == [
        "eth2 has an MTU of 1400, below the plan's 1500: the kernel drops longer packets, which the switch "
        "counts as forwarded"
    ]


def own_addresses(plan: Plan) -> dict[int, str]:
    """Port → its MAC address."""
    state = TARGET.fit_to_hardware(plan, "leaf1").state
    return {port_number(port.name): port.hardware_address for port in state.ports}


@pytest.mark.parametrize(
    ("line", "port", "queue", "field"),
    [
        ("table_modify_match queues set_threshold_and_limit 2 5 => 1000 2000 0 1514", "eth2", 5, "limit"),
        ("table_modify_match queues set_limit 1 7 => 4321 0 1514", "eth1", 7, "limit"),
        ("table_delete_match queues 1 6", "eth1", 6, "queue"),
        ("meter_set_rates policers 14 0.5:1000 0.5:1000", "eth1", 6, "maximum"),
        ("table_modify_match classes set_queue 1 {own_1} 34 => 2", "eth1", 5, "dscps"),
        ("table_delete_match classes 1 {own_1} 48", "eth1", None, "rewritten"),
        ("table_delete_match ports 2 {own_2}", "eth2", None, "trusted"),
        ("table_modify_match ports distrust 2 {own_2} => 0", "eth2", None, "trusted"),
        ("table_add ports trust 2 02:00:00:00:00:09 =>", "eth2", None, "configuration"),
        (
            "table_modify_match neighbours set_neighbour 2 => {own_2} 02:00:00:00:00:09",
            "eth2",
            None,
            "configuration",
        ),
        ("table_modify_match ipv4_routes forward 10.101.0.0/16 => 1", "", None, "route"),
        ("table_add ipv4_routes forward 10.101.7.0/24 => 1", "", None, "route"),
        ("table_add groups forward 9 => 1", "", None, "push"),
    ],
)
def test_a_change_by_hand_is_noticed_and_mended(
    switch: RunningSwitch, rack: Inventory, line: str, port: str, queue: int | None, field: str
) -> None:
    plan = bmv2_plan()
    assert push(plan, rack).exit_code == 0
    own = {f"own_{port}": address for port, address in own_addresses(plan).items()}
    enter(switch, line.format(**own))
    found = verify(plan, rack).devices[0].differences
    assert any((d.port, d.queue) == (port, queue) and d.field.startswith(field) for d in found), found
    [mended] = push(plan, rack).devices
    assert (mended.status, mended.error) == (Status.CHANGED, "")
    assert len([text for text in mended.change.splitlines() if text[0] != "#"]) == 1
    assert verify(plan, rack).exit_code == 0


def test_another_plan_moves_what_differs(switch: RunningSwitch, rack: Inventory) -> None:
    emptied(switch)
    assert push(bmv2_plan(), rack).exit_code == 0
    before = set(entries(switch))
    plan = bmv2_plan(load=0.7)
    [changed] = push(plan, rack).devices
    lines = [line for line in changed.change.splitlines() if line[0] != "#"]
    assert lines
    assert {tuple(line.split(" ")[:2]) for line in lines} <= {
        ("table_modify_match", "queues"),
        ("meter_set_rates", "policers"),
    }
    assert len(set(entries(switch)) - before) == len(lines)


def test_spraying_is_turned_on_and_off_and_a_changed_group_is_noticed(
    switch: RunningSwitch, rack: Inventory
) -> None:
    emptied(switch)
    flows, packets = bmv2_plan(mode="p4", spines=2), bmv2_plan(mode="packet", spines=2)
    assert push(flows, rack).exit_code == 0
    [on] = push(packets, rack).devices
    assert "table_modify_match ipv4_routes share_packets" in on.change
    assert verify(flows, rack).devices[0].differences[0].field == "packet spraying"
    [off] = push(flows, rack).devices
    assert "table_modify_match ipv4_routes share_flows" in off.change
    enter(switch, "table_modify_match groups forward 1 => 2")
    [found] = verify(flows, rack).devices
    assert "route" in {difference.field.split(" ")[0] for difference in found.differences}
    [mended] = push(flows, rack).devices
    assert mended.change.splitlines()[-1] == "table_modify_match groups forward 1 => 2 3"
    emptied(switch)


def test_the_way_back_is_a_push_of_the_plan_before(switch: RunningSwitch, rack: Inventory) -> None:
    emptied(switch)
    assert push(bmv2_plan(), rack).exit_code == 0
    before = entries(switch)
    assert push(bmv2_plan(load=0.6, gradients=2), rack).exit_code == 0
    assert entries(switch) != before
    assert push(bmv2_plan(), rack).exit_code == 0
    assert len(entries(switch)) == len(before)
    assert {line for line in entries(switch) if " queues " in line} == {
        line for line in before if " queues " in line
    }


def test_a_push_that_ends_midway_is_finished_by_the_next(
    switch: RunningSwitch, rack: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    emptied(switch)
    plan, carry_out = bmv2_plan(), P4RuntimeSession._carry_out
    sent: list[str] = []

    def failing(self: P4RuntimeSession, writer: object, command: str) -> None:
        if len(sent) == 12:
            raise DeviceError("is gone")
        sent.append(command)
        carry_out(self, writer, command)  # type: ignore[arg-type]  # a Switch, which is imported with grpc

    monkeypatch.setattr(P4RuntimeSession, "_carry_out", failing)
    report = push(plan, rack)
    [failed] = report.devices
    assert failed.status is Status.FAILED
    assert "refuses step 12 of " in failed.error
    assert "is gone" in failed.error
    assert report.exit_code == DeviceError.exit_code
    monkeypatch.undo()
    [left] = diff(plan, rack).devices
    assert left.status is Status.WOULD_CHANGE
    assert 0 < len(left.change.splitlines()) < len(failed.change.splitlines())
    assert push(plan, rack).exit_code == 0
    assert verify(plan, rack).exit_code == 0


def test_another_controller_is_one_line_and_no_obstacle_to_verify(
    switch: RunningSwitch, rack: Inventory
) -> None:
    assert push(bmv2_plan(), rack).exit_code == 0
    with open_switch(switch.address, device_id=DEVICE_ID):
        assert verify(bmv2_plan(), rack).exit_code == 0
        [refused] = push(bmv2_plan(load=0.5), rack).devices
    assert refused.status is Status.FAILED
    assert "another controller is primary" in refused.error
    assert "leaf1 (unix:" in refused.error
    assert "\n" not in refused.error


def test_foreign_entries_are_kept_and_said(switch: RunningSwitch, rack: Inventory) -> None:
    emptied(switch)
    foreign = (
        "table_add ipv4_routes share_flows 192.168.0.0/16 => 1",
        "table_add groups forward 1 => 2 3",
        "table_add ipv6_routes forward 2001:db8::/32 => 2",
    )
    enter(switch, *foreign)
    [report] = push(bmv2_plan(), rack).devices
    assert report.status is Status.CHANGED
    assert "2 entries that no plan of these ports" in " ".join(report.notes)
    assert set(foreign) <= set(entries(switch))
    emptied(switch)


def test_another_program_is_a_difference_and_is_replaced(switch: RunningSwitch, rack: Inventory) -> None:
    other = dataclasses.replace(shipped_program(), source_sha256="12" * 32)
    with open_switch(switch.address, device_id=DEVICE_ID) as opened:
        opened.load(other)
    [found] = verify(bmv2_plan(), rack).devices
    assert found.status is Status.DIFFERS
    assert "it runs another program (cookie 0x1212121212121212), which a push replaces" in found.notes[0]
    [pushed] = push(bmv2_plan(), rack).devices
    assert "# replaces the program that runs: cookie 0x1212121212121212\nload_program\n" in pushed.change
    assert verify(bmv2_plan(), rack).exit_code == 0


def test_a_switch_that_is_not_there_is_one_line(rack: Inventory, tmp_path: Path) -> None:
    [device] = rack.devices
    gone = dataclasses.replace(device, address=f"unix:{tmp_path}/nobody")
    [report] = verify(bmv2_plan(), Inventory((gone,), Path("inventory"))).devices
    assert report.status is Status.FAILED
    assert "cannot be reached" in report.error
    assert "\n" not in report.error


def test_queues_that_nobody_made_deep_are_a_difference(switch: RunningSwitch, rack: Inventory) -> None:
    """A plan's lines are all there, but a controller that entered them forgot the depth."""
    plan = bmv2_plan()
    assert push(plan, rack).exit_code == 0
    lines = entries(switch)
    emptied(switch)
    enter(switch, *(line for line in lines if " policers 4095 " not in line))
    report = verify(plan, rack)
    assert report.exit_code != 0
    found = {difference.found for difference in report.devices[0].differences}
    assert found == {"nothing says that BMv2's queues hold 16384 packets"}
    [mended] = push(plan, rack).devices
    assert mended.change == "set_queue_depth 16384\nmeter_set_rates policers 4095 0:16384 0:16384\n"
    assert verify(plan, rack).exit_code == 0
