"""What an emulated Arista switch prints about itself.

The running configuration follows the order and the indentation of the configurations that aristanetworks/avd
tests against switches; what is as delivered is left out. The JSON of the config sessions is the part of which
napalm's driver reads the states, those of version and host name the part of which it reads its facts. Ours:
several code points of one traffic class stand on one line, and the differences to what is saved are a unified
diff.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Final

from switchsim.device import Neighbours, mac_address, serial_number
from switchsim.eos_sessions import ConfigSession, SessionState
from switchsim.eos_settings import MODES, ROUTING, EosConfiguration

RELEASE: Final = "4.31.5M-emulator"
"""The release that an emulated switch says it runs where `--release` names no other."""
_LEVEL: Final = "   "


def running_config(hostname: str, release: str, configuration: EosConfiguration) -> str:
    """`show running-config`."""
    text = f"! Command: show running-config\n! device: {hostname} (emulator, EOS-{release})\n!\n"
    text += f"hostname {hostname}\n!\n"
    margin = configuration.lines("")
    if lines := [line for line in margin if line != ROUTING]:
        text += "".join(f"{line}\n" for line in lines) + "!\n"
    for kind in MODES:
        for head in configuration.blocks:
            if head.split(" ")[0] == kind:
                text += "".join(f"{line}\n" for line in (head, *_block(kind, configuration, head), "!"))
    text += f"{ROUTING if ROUTING in margin else f'no {ROUTING}'}\n!\n"
    if configuration.routes:
        text += "".join(f"{route}\n" for route in configuration.routes) + "!\n"
    return text + "end\n"


def _block(kind: str, configuration: EosConfiguration, head: str) -> Iterator[str]:
    """Lines below a head; a queue without any is not shown, a policy map always has a class-default."""
    inner = configuration.blocks[head].inner
    yield from (f"{_LEVEL}{line}" for line in configuration.lines(head))
    if MODES[kind].has_queues:
        for _, queue in sorted((int(queue.split(" ")[1]), queue) for queue in inner):
            if lines := configuration.lines(head, queue):
                yield from (f"{_LEVEL}!", f"{_LEVEL}{queue}", *(f"{_LEVEL * 2}{line}" for line in lines))
    elif kind == "policy-map":
        for each in inner:
            said = (f"{_LEVEL * 2}{line}" for line in configuration.lines(head, each))
            yield from (f"{_LEVEL}{each}", *said, f"{_LEVEL}!")
        if "class class-default" not in inner:
            yield f"{_LEVEL}class class-default"


def unsaved(saved: str, running: str) -> str:
    """`show running-config diffs`: nothing where all is saved."""
    lines = unified_diff(
        saved.splitlines(),
        running.splitlines(),
        "flash:/startup-config",
        "system:/running-config",
        lineterm="",
    )
    return "".join(f"{line}\n" for line in lines)


def names_timer_at_top(release: str) -> bool:
    """Whether the commit timer stands at the top of the answer, as since 4.32; raises ValueError."""
    if (match := re.match(r"([0-9]+)\.([0-9]+)\.", release)) is None:
        raise ValueError(f"{release!r} is no release of EOS, such as 4.35.0F")
    return (int(match[1]), int(match[2])) >= (4, 32)


def version(model: str, release: str, name: str) -> dict[str, object]:
    """`show version | json`."""
    return {
        "mfgName": "Arista",
        "modelName": model,
        "serialNumber": serial_number(name),
        "systemMacAddress": mac_address(name),
        "version": release,
    }


def hostname(name: str) -> dict[str, object]:
    """`show hostname | json`; the emulator has no domain."""
    return {"hostname": name, "fqdn": name}


def neighbours(found: Neighbours) -> dict[str, object]:
    """`show lldp neighbors | json`."""
    entries = [
        {"port": port, "neighborDevice": system, "neighborPort": name, "ttl": 120}
        for port, (system, name) in found.items()
    ]
    return {"tablesInserts": len(entries), "lldpNeighbors": entries}


def sessions(sessions: Mapping[str, ConfigSession], release: str) -> dict[str, object]:
    """`show configuration sessions detail | json`: both forms as napalm's issue 2166 quotes them."""
    shown: dict[str, dict[str, object]] = {}
    top: dict[str, object] = {
        "maxSavedSessions": 1,
        "maxOpenSessions": 5,
        "mergeOnCommit": False,
        "saveToStartupConfigOnCommit": False,
    }
    for name, session in sessions.items():
        entry = shown[name] = {"state": str(session.state), "description": "", "instances": {}}
        if session.state is SessionState.WAITING and not names_timer_at_top(release):
            entry["commitBy"] = session.deadline_seconds
        elif session.state is SessionState.WAITING:
            top |= {"commitTimerSessionName": name, "commitTimerExpireTime": session.deadline_seconds}
        if session.state in {SessionState.WAITING, SessionState.COMPLETED} and names_timer_at_top(release):
            entry["state"] = "committed"
    return {"sessions": shown, **top}
