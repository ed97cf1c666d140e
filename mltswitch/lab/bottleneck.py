"""Chooses the lab port that a probe overloads, and the hosts that send to it."""

from mltswitch.errors import UserInputError
from mltswitch.lab.lab import Lab
from mltswitch.lab.model import BMV2_PLATFORM
from mltswitch.measure import Bottleneck, TestHost
from mltswitch.plan import Plan


def lab_bottleneck(lab: Lab, plan: Plan, receiver: str | None) -> Bottleneck:
    """The leaf port towards `receiver`, and the hosts that overload it.

    A host can send and receive where the lab has a network namespace for it; None is the last of these.
    Senders are all others whose leaf ports the plan trusts: whatever the rest sends is background. Raises
    UserInputError when the lab is down, the host is unknown, or no such host stands on its leaf.
    """
    status = lab.status()
    if status.fabric and status.fabric != plan.fabric.name:
        raise UserInputError(f"the plan is for fabric {plan.fabric.name}, the lab runs {status.fabric}")
    real = {host.name for host in status.hosts if host.namespace}
    hosts = [host for host in plan.topology.hosts if host.name in real]
    if receiver is not None and receiver not in real:
        raise UserInputError(
            f"{receiver!r} is no host of the running lab",
            where="--receiver",
            expected=f"one of {', '.join(sorted(real)) or 'none: the lab is down'}",
        )
    if len(hosts) < 2:
        raise UserInputError("the lab has no two hosts that can send", hint="start it with: mltswitch lab up")
    target = next(host for host in reversed(hosts) if receiver in (None, host.name))
    topology = plan.topology
    senders = [
        host
        for host in hosts
        if host is not target and topology.switch(host.leaf).port(host.leaf_port).trusted
    ]
    near = [host for host in senders if host.leaf == target.leaf]
    if not near:
        raise UserInputError(
            f"no other host stands on {target.leaf} behind a port that the plan trusts", where="--receiver"
        )
    leaf = topology.switch(target.leaf)
    profile = plan.port_profile(leaf, leaf.port(target.leaf_port))
    destinations = tuple(address for _, address in target.aliases) or (target.address,)
    probed = {
        host.name: TestHost(host.name, tuple(lab.host_namespace(host.name).command(())), destinations)
        for host in hosts
    }
    return Bottleneck(
        port=f"{target.leaf}:{target.leaf_port}",
        profile=profile,
        receiver=probed[target.name],
        senders=tuple(probed[host.name] for host in senders),
        near_sender=probed[near[0].name],
        has_line_behind=leaf.platform == BMV2_PLATFORM,
    )
