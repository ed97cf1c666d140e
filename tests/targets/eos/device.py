"""The emulated switch without SSH: asks and applies what a target wants."""

import re
from collections.abc import Mapping

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, Step, SwitchState
from mltswitch.targets.eos import TARGET
from switchsim.eos import MODES, EosDevice
from switchsim.eos_sheet import QUEUE_WORDS
from switchsim.settings import Fact, Facts

CAPABILITIES = TARGET.hardware(None)

MODELS = {
    "trident2": "DCS-7050QX-32-F",
    "trident3": "DCS-7050CX3-32S-R",
    "tomahawk": "DCS-7060CX-32S-F",
    "tomahawk2": "DCS-7260CX3-64-F",
    "tomahawk3": "DCS-7060DX4-32-F",
}
"""Chip → a model that has it, as `show version` names it."""


def read(device: EosDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    session = device.open_session("admin")
    session.enter("enable")
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted, capabilities)


def send(device: EosDevice, steps: tuple[Step, ...]) -> None:
    """The steps in one session, beginning in configuration mode, as the deployer does."""
    session = device.open_session("admin")
    for line in ("enable", "configure terminal"):
        session.enter(line)
    for step in steps:
        answer = session.enter(step.command).text
        assert not answer.startswith("%"), f"{step.command}: {answer}"


def apply(device: EosDevice, change: Change) -> None:
    send(device, change.steps)
    send(device, change.save)


FAMILIES = ("ip", "ipv6")


def lines_of(running: Facts, head: str, inner: str = "") -> list[str]:
    word = QUEUE_WORDS[inner.startswith(QUEUE_WORDS[1])]
    return MODES[word].printed(running, f"{head}\n{inner}".rstrip())


def routes_of(running: Facts) -> set[Fact]:
    """Static routes."""
    return {fact for fact in running if fact[1] == "route"}


def policy_of(running: Facts, port: str) -> str:
    words = "service-policy type qos input "
    found = [line for line in lines_of(running, f"interface {port}") if line.startswith(words)]
    return found[0].removeprefix(words) if found else ""


def actions(running: Facts, policy: str, family: str, dscp: int) -> Mapping[str, str]:
    """What a policy map sets for a packet of this family; class-default is for other packets."""
    head = f"policy-map type quality-of-service {policy}"
    for inner in running.heads("", head):
        name = inner.removeprefix("class ")
        for line in lines_of(running, f"class-map type qos match-any {name}"):
            listed = lines_of(running, f"{family} access-list {line.rpartition(' ')[2]}")
            entries = (re.fullmatch(r"\d+ (\w+) ipv?6? any any(?: dscp (\S+))?", each) for each in listed)
            meant = (each[1] for each in entries if each and each[2] in {None, *spelled(dscp)})
            if line.startswith(f"match {family} ") and next(meant, "") == "permit":
                return {each.split()[1]: each.split()[2] for each in lines_of(running, head, inner)}
    return {}


def spelled(dscp: int) -> tuple[str, str]:
    """A code point by its number and by its name, where it has one."""
    group, rest = divmod(dscp, 8)
    name = {46: "ef", 8 * group: f"cs{group}"}.get(dscp, "")
    if group in range(1, 5) and rest in {2, 4, 6}:
        name = f"af{group}{rest // 2}"
    return str(dscp), name or str(dscp)
