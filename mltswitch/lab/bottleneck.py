"""Which port of the lab a probe overloads, and from where."""

from mltswitch.errors import UserInputError
from mltswitch.lab.lab import Lab
from mltswitch.lab.model import BMV2_PLATFORM
from mltswitch.measure import Bottleneck, ProbeHost
from mltswitch.plan import Host, Plan


def lab_bottleneck(lab: Lab, plan: Plan, receiver: str | None) -> Bottleneck:
    """The leaf port before `receiver` (default: the last real host), every other real host sending to it.

    Only hosts whose leaf ports the plan trusts: whatever others send is background. Raises UserInputError
    when the lab is down, the host is unknown, or no such host stands beside it on its leaf.
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
    probe_hosts = {host.name: _probe_host(lab, host) for host in hosts}
    return Bottleneck(
        port=f"{target.leaf}:{target.leaf_port}",
        profile=profile,
        receiver=probe_hosts[target.name],
        senders=tuple(probe_hosts[host.name] for host in senders),
        near_sender=probe_hosts[near[0].name],
        has_line_behind=leaf.platform == BMV2_PLATFORM,
    )


def _probe_host(lab: Lab, host: Host) -> ProbeHost:
    prefix = tuple(lab.host_namespace(host.name).command(()))
    return ProbeHost(host.name, prefix, tuple(address for _, address in host.aliases))
