"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.icos import TARGET
from switchsim.icos import SAVED, IcosDevice
from switchsim.settings import Facts

CAPABILITIES = TARGET.hardware(None)


def read(device: IcosDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES) -> RunningState:
    session = device.open_session("admin")
    session.enter("enable")
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted, capabilities)


def apply(device: IcosDevice, change: Change) -> None:
    session = device.open_session("admin")
    session.enter("enable")
    session.enter("configure")
    for step in (*change.steps, *change.save):
        answer = session.enter(step.command).text
        assert answer == (SAVED if step.command.startswith("write") else ""), f"{step.command}: {answer}"
    assert session.prompt == f"({device.name}) (Config)#"


def policy_of(device: IcosDevice, port: str) -> str:
    """The name of its policy; empty where it has none."""
    place = f"interface {port}"
    return next((fact[2] for fact in device.configuration if fact[:2] == (place, "policy")), "")


def policies_of(facts: Facts) -> dict[str, dict[str, dict[str, int]]]:
    """Policy → class → what is done, by `assign-queue` or `mark-ip-dscp`."""
    heads = {head: facts.heads("", head) for head in facts.heads("policy-map ")}
    does = {
        head: {
            each.split()[-1]: {
                fact[1]: value for fact, value in facts.items() if fact[0] == f"{head}\n{each}" and fact[1]
            }
            for each in inner
        }
        for head, inner in heads.items()
    }
    return {head.split()[1]: classes for head, classes in does.items()}


def actions(device: IcosDevice, policy: str, family: str, dscp: int) -> dict[str, int]:
    """What a policy does with packets; a class without any match fits none."""
    facts = device.configuration
    for name, does in policies_of(facts).get(policy, {}).items():
        head = f"class-map match-all {name}"
        matches = {fact[1]: value for fact, value in facts.items() if fact[0] == head and fact[1]}
        if matches in ({"any": True, "family": family}, {"ip-dscp": dscp, "family": family}):
            return does if device.fact("", "diffserv") else {}
    return {}
