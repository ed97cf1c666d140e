"""Translates a plan into the fields of one host's agent settings."""

from pathlib import Path
from typing import Any

from mltswitch.capabilities import BytesLimit
from mltswitch.errors import UserInputError
from mltswitch.hostagent.endpoint import Endpoint
from mltswitch.hostagent.spraying import MOST_BURST_PACKETS, Spraying
from mltswitch.hostagent.spraying.paths import Path as FabricPath
from mltswitch.hostagent.spraying.paths import SegmentList, host_of, paths_between
from mltswitch.hostagent.tagging.classes import Classes
from mltswitch.plan import ClassKind, Host, Plan, load_plan
from mltswitch.profile import ModelProfile, bundled_names, profile_sha256, resolve_profile
from mltswitch.wire import AGENT_PORT, SourceRoute
from mltswitch.wire.hardware_address import hardware_address


def planned_fields(
    folder: Path, file: str, name: str, profile: str | None, given: Spraying
) -> dict[str, Any]:
    """Read a plan, and return what it says of a host, by the names of the fields of `AgentConfig`.

    Args:
        folder: folder to which the paths of plan and profile are relative.
        file: path of the plan.
        name: name of the host.
        profile: file or name of the model profile, for names of layers.
        given: settings of spraying that the plan leaves open.

    Raises UserInputError (`where` is "name" for a host that the plan does not know), or UnsupportedPlanError
    for a plan whose paths agents cannot use.
    """
    plan = load_plan(folder / file)
    try:
        host = host_of(plan, name)
    except UserInputError as error:
        error.where = "name"
        raise
    spraying, addresses = _spraying(plan, host, given)
    return _rate(plan, host) | {
        "addresses": addresses,
        "listen": str(Endpoint(str(host.address), AGENT_PORT)),
        "peers": {
            entry.name: str(Endpoint(str(entry.address), AGENT_PORT))
            for entry in plan.topology.hosts
            if entry.name != name and not entry.address.is_unspecified
        },
        "mtu_bytes": plan.fabric.ports.mtu_bytes,
        "burst_packets": min(plan.paths.burst_packets, MOST_BURST_PACKETS),
        "classes": planned_classes(plan, _profile(plan, profile, folder)),
        "spraying": spraying,
    }


def planned_classes(plan: Plan, profile: ModelProfile | None = None) -> Classes:
    """DSCPs of a plan's classes and the layers of each, with the layers' names from the profile, if given."""
    gradients = [(entry, entry.layers) for entry in plan.gradient_classes if entry.layers is not None]
    kinds = {entry.kind: entry.dscp[0] for entry in plan.classes}
    names: dict[str, int] = {}
    for _, layers in gradients:
        names |= {layers.first_name: layers.first, layers.last_name: layers.last}
    for number, layer in enumerate(profile.layers if profile else ()):
        names |= dict.fromkeys((tensor.name for tensor in layer.tensors), number)
    names |= {layer.name: number for number, layer in enumerate(profile.layers if profile else ())}
    return Classes(
        # Every fabric file has this class; without one in the plan, what no class has.
        control_dscp=kinds.get(ClassKind.CONTROL, 0),
        gradient_dscp=tuple(entry.dscp[0] for entry, _ in gradients),
        background_dscp=kinds.get(ClassKind.BACKGROUND),
        layers=1 + max(layers.last for _, layers in gradients),
        first_layers=tuple(layers.first for _, layers in gradients),
        names=names,
    )


def _profile(plan: Plan, named: str | None, folder: Path) -> ModelProfile | None:
    if named is None:
        return None
    profile = resolve_profile(named if named in bundled_names() else str(folder / named))
    if profile_sha256(profile) != plan.provenance.profile_sha256:
        problem = f"{profile.name!r} is not {plan.provenance.profile_name!r}, that the plan was made for"
        raise UserInputError(problem, where="profile", hint="make the plan again for this profile")
    return profile


def _spraying(plan: Plan, host: Host, given: Spraying) -> tuple[Spraying, tuple[str, ...]]:
    """And the local addresses, one a path to the farthest peers; nearer ones are reached from the same."""
    mode = "alias" if plan.paths.mode == "packet" else plan.paths.mode
    if given.mode not in {None, mode}:
        raise UserInputError(f"the plan's is {mode}", where="spraying.mode", expected="nothing")
    peers, pods = [entry for entry in plan.topology.hosts if entry.name != host.name], plan.topology.pods
    peers.sort(key=lambda entry: (entry.leaf == host.leaf, pods[entry.leaf] == pods[host.leaf]))
    asked = peers if mode == "p4" else peers[:1]
    paths = {peer.name: paths_between(plan, host.name, peer.name, given) for peer in asked}
    most: tuple[FabricPath, ...] = next(iter(paths.values()), ())
    found: dict[str, Any] = {"mode": mode}
    if mode == "entropy":
        found["source_ports"] = max(len(most), 1)
    elif mode == "srv6":
        lists = [path.way for path in most if isinstance(path.way, SegmentList)]
        found = {"segments": tuple(each.segments[:-1] for each in lists)}
        found["mode"] = mode if lists else "alias"  # all hosts are below one leaf
    elif mode == "p4":
        found |= {"interface": host.interface, "gateway": hardware_address(host.gateway)}
        found["routes"] = {
            peer: tuple(path.way.ports for path in ways if isinstance(path.way, SourceRoute))
            for peer, ways in paths.items()
        }
    addresses = tuple(str(path.source) for path in most) or (str(host.address),)
    return given.model_copy(update=found), addresses


def _rate(plan: Plan, host: Host) -> dict[str, Any]:
    """The host's link, the gradients' share of it, and the queues where incast meets."""
    leaf = plan.topology.switch(host.leaf)
    port = plan.port_profile(leaf, leaf.port(host.leaf_port))
    gradients = {entry.name for entry in plan.gradient_classes}
    queues = [queue for queue in port.queues if queue.traffic_class in gradients]
    drops_from = [
        queue.ecn_threshold_bytes
        if queue.ecn_threshold_bytes is not None
        else (queue.limit.size_bytes if isinstance(queue.limit, BytesLimit) else port.buffer_bytes)
        for queue in queues
    ]
    shares = [entry.rate_cap_share for entry in plan.gradient_classes if entry.rate_cap_share]
    return {
        "line_rate_bps": port.rate_bps,
        "queue_bytes": max(drops_from, default=0),
        "rate_share": min(shares, default=1.0),
    }
