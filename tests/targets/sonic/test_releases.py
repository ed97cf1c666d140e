"""What each SONiC release lets change, and that a push sends nothing that the release refuses."""

import copy
import re
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mltswitch.capabilities import AlphaLimit, Capabilities
from mltswitch.errors import DeviceError
from mltswitch.targets import SwitchState
from mltswitch.targets.sonic import TARGET
from mltswitch.targets.sonic.capabilities import HARDWARE
from mltswitch.targets.sonic.releases import RELEASES, Operation, build_of, refusals, release_of
from mltswitch.targets.state import PortState, QueueState
from switchsim.sonic import SonicDevice
from tests.targets.sonic.device import apply, read
from tests.targets.strategies import LAW_EXAMPLES, plans, switch_names

SPECTRUM, SPECTRUM2 = "ACS-MSN2700", "ACS-MSN3700"
BUILDS = st.sampled_from([*RELEASES, "20220531", "20250530", "202111", "202612", "4.1.0-vendor"])


def change(path: str, op: str = "replace", value: object = "1") -> Operation:
    return {"op": op, "path": path, "value": value}


PROFILE = {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "1"}


@pytest.mark.parametrize(
    ("operation", "build", "hwsku", "is_refused"),
    [
        # tests/generic_config_updater/field_operation_validator_test.py, by branch
        (change("/BUFFER_POOL/ingress_lossless_pool/xoff", "remove"), "20230530", SPECTRUM, True),
        (change("/BUFFER_PROFILE/sample_profile/dynamic_th"), "20251130.1", SPECTRUM, False),
        (change("/BUFFER_PROFILE/new_profile", "add", PROFILE), "20251130.1", "Unknown-9000", False),
        (change("/BUFFER_PROFILE/pg_lossless_40000_5m_profile", "remove"), "20251130", SPECTRUM, False),
        (change("/BUFFER_PROFILE/my_profile", "move"), "20251130", SPECTRUM, True),
        (change("/WRED_PROFILE/AZURE_LOSSLESS/green_min_threshold"), "20250530.12", SPECTRUM, False),
        (change("/WRED_PROFILE/AZURE_LOSSY/green_min_threshold"), "20250530.12", SPECTRUM, False),
        (change("/WRED_PROFILE/AZURE_LOSSY/invalid"), "20250530.12", SPECTRUM, True),
        (change("/WRED_PROFILE/AZURE_LOSSY/green_min_threshold"), "20250530.12", "Unknown-9000", True),
        # The branches' lists of fields, operations and hardware
        (change("/WRED_PROFILE/AZURE_LOSSLESS/green_min_threshold"), "202411.1", SPECTRUM, False),
        (change("/WRED_PROFILE/MLT_Q6_Ethernet4/green_min_threshold"), "202411.1", SPECTRUM, True),
        (change("/WRED_PROFILE/MLT", "add", {"ecn": "ecn_all"}), "202505.1", SPECTRUM, True),
        (change("/WRED_PROFILE/MLT", "add", {"ecn": "ecn_all"}), "202511.1", SPECTRUM, False),
        (change("/BUFFER_PROFILE/MLT_Q6_Ethernet4/dynamic_th"), "202305.1", SPECTRUM, False),
        (change("/BUFFER_PROFILE/lossy/dynamic_th"), "202305.1", SPECTRUM, True),
        (change("/BUFFER_PROFILE/MLT_Q6_Ethernet4", "add", PROFILE), "202505.1", SPECTRUM, True),
        (change("/BUFFER_PROFILE", "add", {"MLT": PROFILE}), "202511.1", SPECTRUM, True),
        (change("/BUFFER_PROFILE/MLT_Q6_Ethernet4/dynamic_th"), "202205.1", SPECTRUM2, True),
        (change("/BUFFER_PROFILE/MLT_Q6_Ethernet4/dynamic_th"), "202305.1", SPECTRUM2, False),
        (change("/BUFFER_PROFILE/MLT_Q6_Ethernet4", "add", PROFILE), "202211.1", SPECTRUM, False),
        (change("/BUFFER_POOL/ingress_lossless_pool/xoff"), "master.1", SPECTRUM, True),
        (change("/QUEUE/Ethernet0|6/scheduler"), "202205.1", "Unknown-9000", False),
    ],
)
def test_public_examples(operation: Operation, build: str, hwsku: str, is_refused: bool) -> None:
    assert bool(refusals([operation], build, hwsku)) is is_refused


@pytest.mark.parametrize(
    ("build", "release"),
    [
        ("202311.575682-1b2c", "202311"),
        ("20220531.15", "202205"),
        ("20241211.35", "202411"),
        ("202012.9", ""),
        ("SONiC.master.202305", "202305"),
        ("master.921843-5d0a", None),
        ("4.1.0-Enterprise_Base", None),
        ("202711.1", None),
    ],
)
def test_the_release_of_a_build(build: str, release: str | None) -> None:
    assert build_of(f"---\nbuild_version: '{build}'\nasic_type: mellanox\n") == build
    assert release_of(build) == release


@settings(max_examples=LAW_EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(list(HARDWARE.values())), BUILDS, st.booleans(), st.data())
def test_what_is_sent_is_accepted_and_what_is_not_sent_would_be_refused(
    capabilities: Capabilities, build: str, only_tunes: bool, data: st.DataObject
) -> None:
    device = SonicDevice(ports=6, box=capabilities.hardware)
    if data.draw(st.booleans(), label="runs a plan"):
        running = drawn(data, capabilities)
        push(device, running, capabilities)
        wanted = tuned(running, capabilities, data) if only_tunes else drawn(data, capabilities)
    else:
        wanted = drawn(data, capabilities)
    before = copy.deepcopy(device.config_db)
    unjudged = TARGET.diff(read(device, wanted, capabilities), wanted, capabilities)
    set_build(device, build)
    try:
        change = TARGET.diff(read(device, wanted, capabilities), wanted, capabilities)
    except DeviceError as error:
        results = [device.execute("admin", step.command, step.stdin.encode) for step in unjudged.steps]
        assert any(b"table is illegal" in result.stderr for result in results)
        device.config_db = before
        first = re.fullmatch(r"release (\w+) or later", error.expected)
        assert first is not None
        for release in RELEASES[RELEASES.index(first[1]) :]:
            set_build(device, release)
            device.config_db = copy.deepcopy(before)
            push(device, wanted, capabilities)
        return
    apply(device, change)
    assert read(device, wanted, capabilities).state == wanted
    assert TARGET.diff(read(device, wanted, capabilities), wanted, capabilities).is_empty
    if change.steps:
        assert device.execute("admin", change.rollback_hint).status == 0
        assert device.config_db == before


def set_build(device: SonicDevice, release: str) -> None:
    """As another image on the same switch: configuration and checkpoints stay."""
    other = SonicDevice(release=release)
    device.build = other.build
    device.files.write(
        "/etc/sonic/sonic_version.yml", other.files.read("/etc/sonic/sonic_version.yml"), as_root=True
    )


def push(device: SonicDevice, wanted: SwitchState, capabilities: Capabilities) -> None:
    apply(device, TARGET.diff(read(device, wanted, capabilities), wanted, capabilities))
    assert read(device, wanted, capabilities).state == wanted


def drawn(data: st.DataObject, capabilities: Capabilities) -> SwitchState:
    plan = data.draw(plans(capabilities))
    return TARGET.fit_to_hardware(plan, data.draw(switch_names(plan))).state


def tuned(state: SwitchState, capabilities: Capabilities, data: st.DataObject) -> SwitchState:
    """The same plan with lower thresholds or with greater shares."""
    step, more = data.draw(
        st.sampled_from([(0, 1), (capabilities.threshold.step_bytes, 0)]), label="tuned by"
    )
    exponents = capabilities.limit.alpha_exponents
    assert exponents is not None

    def changed(queue: QueueState) -> QueueState:
        limit, threshold = queue.limit, queue.ecn_threshold_bytes
        if isinstance(limit, AlphaLimit):
            limit = AlphaLimit(min(limit.exponent + more, max(exponents)))
        return replace(queue, limit=limit, ecn_threshold_bytes=(threshold and threshold - step) or threshold)

    ports = [replace(port, queues=tuple(changed(queue) for queue in port.queues)) for port in state.ports]
    return replace(state, ports=tuple(ports))


@pytest.mark.parametrize(
    ("release", "step_bytes", "more", "refused"),
    [
        ("202411", 0, 1, None),
        ("202411", 6144, 0, "WRED_PROFILE"),
        ("202505", 6144, 1, None),
        ("202505", 6144, 0, None),
    ],
)
def test_the_fields_that_a_release_lets_tune(
    release: str, step_bytes: int, more: int, refused: str | None
) -> None:
    queue = QueueState(6, tuple(range(64)), 18432, AlphaLimit(-3))
    device = SonicDevice()
    push(device, state_of(queue), HARDWARE["sn2700"])
    set_build(device, release)
    wanted = state_of(replace(queue, ecn_threshold_bytes=18432 + step_bytes, limit=AlphaLimit(-3 + more)))
    if refused is None:
        push(device, wanted, HARDWARE["sn2700"])
    else:
        with pytest.raises(DeviceError, match=f"SONiC {release} refuses the replace of {refused}"):
            push(device, wanted, HARDWARE["sn2700"])


def test_what_nothing_refers_to_stays_where_the_release_does_not_let_it_go() -> None:
    first = PortState("Ethernet0", True, None, (QueueState(6, tuple(range(64)), 18432, AlphaLimit(-3)),))
    second = replace(first, name="Ethernet4", queues=(replace(first.queues[0], limit=AlphaLimit(-2)),))
    device = SonicDevice()
    push(device, SwitchState((first, second), ()), HARDWARE["sn2700"])
    set_build(device, "202505")
    wanted = SwitchState((first, replace(first, name="Ethernet4")), ())
    push(device, wanted, HARDWARE["sn2700"])
    for table in ("WRED_PROFILE", "BUFFER_PROFILE"):
        assert "MLT_Q6_Ethernet4" in device.config_db[table]
    assert TARGET.diff(read(device, wanted), wanted, HARDWARE["sn2700"]).is_empty
    set_build(device, "202511")
    push(device, wanted, HARDWARE["sn2700"])
    for table in ("WRED_PROFILE", "BUFFER_PROFILE"):
        assert "MLT_Q6_Ethernet4" not in device.config_db[table]


def state_of(queue: QueueState) -> SwitchState:
    return SwitchState((PortState("Ethernet0", True, None, (queue,)),), ())


def test_a_build_that_is_not_known_is_judged_by_the_newest_rules_and_says_so() -> None:
    wanted = state_of(QueueState(6, tuple(range(64)), 18432, AlphaLimit(-3)))
    [note] = read(SonicDevice(release="4.1.0-vendor"), wanted).notes
    assert "4.1.0-vendor.0-emulator" in note
    assert read(SonicDevice(), wanted).notes == ()
    answers = {**read(SonicDevice(), wanted).answers, "cat /etc/sonic/sonic_version.yml": "---\n"}
    with pytest.raises(DeviceError, match="cannot read which release"):
        TARGET.read(answers, wanted, HARDWARE["sn2700"])
