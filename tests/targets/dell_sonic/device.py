"""The emulated switch without SSH: asks and applies what a target wants."""

from mltswitch.capabilities import Capabilities
from mltswitch.targets import Change, RunningState, SwitchState
from mltswitch.targets.dell_sonic import TARGET
from switchsim.dell_sonic import TABLE, DellSonicDevice
from switchsim.device import CommandLine
from switchsim.settings import Fact, Facts

CAPABILITIES = TARGET.hardware(None)


def session_of(device: DellSonicDevice, *lines: str) -> CommandLine:
    session = device.open_session("admin")
    for line in ("sonic-cli", *lines):
        assert session.enter(line).text == "", line
    return session


def read(
    device: DellSonicDevice, wanted: SwitchState, capabilities: Capabilities = CAPABILITIES
) -> RunningState:
    session = session_of(device)
    answers = {query: session.enter(query).text for query in TARGET.queries(wanted)}
    return TARGET.read(answers, wanted, capabilities)


def apply(device: DellSonicDevice, change: Change) -> None:
    session = session_of(device, "configure terminal")
    for step in (*change.steps, *change.save):
        answer = session.enter(step.command).text
        assert answer == "", f"{step.command}: {answer}"
    assert session.prompt == f"{device.name}(config)# "


def lines_of(configuration: Facts, head: str, inner: str = "") -> list[str]:
    return TABLE.printed(configuration, f"{head}\n{inner}".rstrip())


def routes_of(configuration: Facts) -> set[Fact]:
    """Static routes."""
    return {fact for fact in configuration if fact[1] == "route"}
