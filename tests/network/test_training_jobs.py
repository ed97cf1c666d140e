"""What starts when something else has ended: steps and flows, rounds of training, stragglers, pulls."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mltswitch.errors import UserInputError
from mltswitch.network.results import Run
from mltswitch.network.transports.parameters import Mlt, NewReno
from mltswitch.network.workloads import Flow, Work
from mltswitch.network.workloads.collectives import ring_pass
from mltswitch.profile import Layer, ModelProfile, Tensor, default_sensitivity
from tests.network.support import network, play, world

PACKET_PICOSECONDS = 1500 * 8 * 100
ANSWER_PICOSECONDS = 64 * 8 * 100
"""The last acknowledgement of a push goes before the pull that it lets begin."""
CABLE_PICOSECONDS = 2_000_000
WITHIN_LEAF = 2 * (PACKET_PICOSECONDS + CABLE_PICOSECONDS)
"""One packet from host to host behind the same leaf."""
MILLISECOND = 10**9
SECOND = 10**12


def model(folder: Path, *packets: int) -> str:
    """A profile of layers that are so many packets long."""
    layers = [
        Layer(name=f"layer{place}", tensors=(Tensor(name=f"layer{place}.weight", shape=(count * 365,)),))
        for place, count in enumerate(packets)
    ]
    sensitivity = default_sensitivity([layer.size_bytes for layer in layers], 0.1)
    profile = ModelProfile(
        schema="mltswitch/profile/v1", name="small", layers=tuple(layers), sensitivity=sensitivity
    )
    path = folder / "profile.yaml"
    path.write_text(profile.model_dump_json(by_alias=True))
    return str(path)


def train(kind: str, folder: Path, packets: tuple[int, ...], *, hosts: int = 2, **changes: Any) -> Run:
    """One run of a training job on hosts behind one leaf, over switches that drop nothing."""
    transport = changes.pop("transport", {"transport": {"name": "newreno", "initial_window": 10_000}})
    (run,) = play(
        fabric={"leaves": 1, "hosts_per_leaf": hosts, "rate": "10Gbps", "delay": 2e-6},
        buffer="50MB",
        workload={"kind": kind, "profile": model(folder, *packets)} | changes,
        transports=[transport],
    )
    assert run.summary.open_flows == 0
    return run


def test_a_flow_starts_when_what_it_waits_for_has_ended() -> None:
    work = Work()
    there = (work.send(Flow(0, 1, 1460, 0, 777)), work.send(Flow(2, 1, 14_600, 0)))
    computed = work.compute(1, 5e-6, there)
    back = work.send(Flow(1, 0, 1460, 0, after=computed))
    run = world(network(leaves=1), work, NewReno())
    while run.advance():
        pass
    last = WITHIN_LEAF + 9 * PACKET_PICOSECONDS
    assert int(run.flows["finish"][1]) in (last, last + PACKET_PICOSECONDS)  # the other one's may be before
    assert int(run.flows["start"][back]) == int(run.flows["finish"][:2].max()) + 5_000_000
    assert int(run.flows["finish"][back]) == int(run.flows["start"][back]) + WITHIN_LEAF


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_everything_starts_when_the_last_before_it_has_ended(data: st.DataObject) -> None:
    work, names = Work(), list[int]()
    for _ in range(data.draw(st.integers(1, 25))):
        after = tuple(data.draw(st.lists(st.sampled_from(names), max_size=3)) if names else ())
        if data.draw(st.booleans()):
            source, way = data.draw(st.integers(0, 7)), data.draw(st.integers(1, 7))
            size = data.draw(st.integers(1, 20_000))
            names.append(work.send(Flow(source, (source + way) % 8, size, 0, 1234, after=after)))
        else:
            names += work.compute(0, data.draw(st.sampled_from([0, 1e-6, 1e-3])), after)
    transport = NewReno() if data.draw(st.booleans()) else Mlt()
    run = world(network(loss=0.01), work, transport, spraying=True)
    while run.advance(events=data.draw(st.integers(1, 1000))):
        pass
    flows, finish = run.flows, run.tables["steps"]["finish"]

    def ended(number: int) -> int:
        return int(flows["finish"][number] if number >= 0 else finish[~number])

    for number, flow in enumerate(work):
        assert int(flows["start"][number]) == max(map(ended, flow.after), default=1234)
    for number, step in enumerate(work.steps):
        assert ended(~number) == max(map(ended, step.after), default=0) + step.picoseconds
    assert (flows["finish"] > flows["start"]).all()


def test_push_and_pull_of_one_tensor_take_what_their_packets_take(tmp_path: Path) -> None:
    run = train("parameter-server", tmp_path, (40,), pull=True)
    way = WITHIN_LEAF + 39 * PACKET_PICOSECONDS
    both = 2 * way + ANSWER_PICOSECONDS
    assert run.flows["end_picoseconds"].tolist() == [way, both]
    assert run.steps["end_picoseconds"].tolist() == [both]
    run = train("parameter-server", tmp_path, (40,), pull=True, rounds=3, forward=1e-3, backward=2e-3)
    step = 3 * MILLISECOND + both
    assert run.steps["end_picoseconds"].tolist() == [step, 2 * step, 3 * step]
    assert run.summary.step_max_seconds == run.summary.step_mean_seconds == step / SECOND


def test_a_layer_computes_when_its_own_parameters_have_come(tmp_path: Path) -> None:
    """The front layer is small and is there soon; the second one comes while the first one computes."""
    for forward in (1e-4, 1e-3, 1e-2):
        run = train("parameter-server", tmp_path, (1, 500), pull=True, rounds=2, forward=forward)
        end, start = run.flows["end_picoseconds"], run.flows["start_picoseconds"]
        labels = run.flows["label"].tolist()
        first, second = (end[labels.index(f"layer{layer} (result)")] for layer in (0, 1))
        assert first < second
        half = round(forward * SECOND) // 2
        next_pushes = start[np.flatnonzero(run.flows["label"] == "layer1")[1]]
        assert next_pushes == max(first + half, second) + half


@pytest.mark.parametrize(("hosts", "packets"), [(2, 8), (4, 20), (5, 10), (5, 500)])
def test_a_ring_takes_all_its_steps_one_after_the_other(hosts: int, packets: int, tmp_path: Path) -> None:
    """2 (n - 1) times a part's packets and its way; the next part follows the last acknowledgement."""
    run = train("ring", tmp_path, (packets,), hosts=hosts)
    steps, of_part = 2 * (hosts - 1), packets // hosts
    passed = steps * (WITHIN_LEAF + (of_part - 1) * PACKET_PICOSECONDS)
    assert len(run.flows["flow"]) == steps * hosts
    (end,) = set(run.steps["end_picoseconds"].tolist())
    if of_part * PACKET_PICOSECONDS <= WITHIN_LEAF:
        assert end == passed + (steps - 1) * ANSWER_PICOSECONDS
    else:  # what comes is acknowledged while own packets still leave
        assert passed < end <= passed * (1 + 64 / 1500)


def test_a_ring_sends_no_sum_before_a_host_has_added_its_own() -> None:
    work = Work()
    ready = work.compute(0, 0.010, ())

    def make(source: int, destination: int, size: int, after: Any, _is_result: bool) -> Flow:
        return Flow(source, destination, size, 0, after=after)

    ring_pass(work, [0, 1], [1460, 1460], [ready, ()], make, reduces=True, gathers=True)
    run = world(network(), work, NewReno())
    while run.advance():
        pass
    for flow, end in zip(work, run.flows["finish"].tolist(), strict=True):
        comes_after = flow.source == 0 or flow.after != ()
        assert (end > 10 * MILLISECOND) == comes_after


def test_buckets_of_a_ring_leave_as_their_first_layers_are_ready(tmp_path: Path) -> None:
    run = train("ring", tmp_path, (10, 10, 10, 10), bucket="30kB", backward=4e-3)
    starts = {
        label: run.flows["start_picoseconds"][run.flows["label"] == label] for label in ("layer0", "layer2")
    }
    assert starts["layer2"].min() == 2 * MILLISECOND
    assert starts["layer0"].min() == 4 * MILLISECOND
    assert set(run.flows["label"].tolist()) == {"layer0", "layer2"}


def test_a_tree_of_one_piece_goes_up_and_down(tmp_path: Path) -> None:
    """A chain of three: two hops up, and two down, each of the whole piece."""
    settings = {"in_degree": 1, "placement": "fixed"}
    run = train("tree", tmp_path, (5,), hosts=3, settings=settings)
    hop = WITHIN_LEAF + 4 * PACKET_PICOSECONDS
    assert len(run.flows["flow"]) == 4
    ends = sorted(run.flows["end_picoseconds"].tolist())
    assert all(place * hop <= end <= place * (hop + ANSWER_PICOSECONDS) for place, end in enumerate(ends, 1))
    assert run.steps["end_picoseconds"].max() == ends[-1]


def test_a_straggler_delays_the_step_by_what_it_computes_more(tmp_path: Path) -> None:
    even, late = (
        train("parameter-server", tmp_path, (10,), hosts=4, forward=1e-3, backward=2e-3, **changes).steps
        for changes in ({}, {"stragglers": {"hosts": [1], "factor": 3}})
    )
    wait = late["end_picoseconds"].max() - even["end_picoseconds"].max()
    # Alone, the late worker's packets wait for no others at the server.
    others = 2 * 10 * PACKET_PICOSECONDS
    assert wait == 2 * 3 * MILLISECOND - others


def test_a_share_of_stragglers_is_drawn_from_the_seed(tmp_path: Path) -> None:
    run = train(
        "parameter-server", tmp_path, (1,), hosts=8, backward=1e-3, stragglers={"share": 0.5, "factor": 2}
    )
    starts = run.flows["start_picoseconds"]
    assert sorted(starts.tolist()) == [MILLISECOND] * 3 + [2 * MILLISECOND] * 3


def test_noise_is_of_the_seed_and_keeps_the_mean(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"hosts": 8, "backward": 1e-3, "noise": 0.3, "rounds": 40}
    one, other = (train("parameter-server", tmp_path, (1,), **arguments) for _ in range(2))
    assert all((one.flows[name] == other.flows[name]).all() for name in one.flows)
    assert all((one.steps[name] == other.steps[name]).all() for name in one.steps)
    assert len(set(one.flows["start_picoseconds"][:6].tolist())) == 6
    begun = np.append(0, one.steps["end_picoseconds"][:-6:6]).repeat(6)
    computed = one.flows["start_picoseconds"] - begun
    assert np.log(computed / MILLISECOND).std() == pytest.approx(0.3, rel=0.15)
    assert computed.mean() == pytest.approx(MILLISECOND, rel=0.05)


def test_servers_on_the_hosts_of_workers_keep_their_share_there(tmp_path: Path) -> None:
    run = train("parameter-server", tmp_path, (40,), hosts=4, colocated=True, mapping="sliced", pull=True)
    assert len(run.flows["flow"]) == 2 * 4 * 3
    assert (run.flows["source"] != run.flows["destination"]).all()
    assert len(set(run.flows["source"].tolist())) == 4
    assert len(set(run.steps["host"].tolist())) == 4


def test_parameters_lose_nothing_unless_they_may(tmp_path: Path) -> None:
    transport = {
        "transport": {"name": "mlt", "loss_bound": 0.9, "unimportant_share": 1},
        "spraying": False,
        "switch": {"kind": "thresholds", "classes": [{"s": "3kB", "l": "50MB"}]},
    }
    for lossy in (False, True):
        run = train(
            "parameter-server", tmp_path, (50,), hosts=4, pull=True, lossy_pull=lossy, transport=transport
        )
        is_result = np.array(["(result)" in label for label in run.flows["label"]])
        whole = run.flows["packets"] <= run.flows["sent_packets"] - run.flows["dropped_packets"]
        assert not whole[~is_result].all()
        assert whole[is_result].all() == (not lossy)


def test_open_flows_say_who_waits_for_whom(tmp_path: Path) -> None:
    with pytest.raises(UserInputError) as caught:
        play(
            workload={"kind": "parameter-server", "profile": model(tmp_path, 3), "pull": True},
            link_loss=0.999999,
            transports=["newreno"],
        )
    said = str(caught.value)
    assert re.match(r"newreno: 12 flows are open, .*: flow 0, host1 to host7, ", said)
    assert said.endswith("; 6 flows wait for it or others, flow 6 first")
