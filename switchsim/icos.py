"""An emulated FASTPATH (ICOS) switch: what its command line does and shows.

Stateful and strict: a line that the grammar lacks, or whose values are out of range, changes nothing and is
answered with the switch's own `% Invalid input` or `Command not found`, or with a text that ends in
`[emulator]`. Each line takes effect at once; `write memory` asks before it saves, `write memory confirm` does
not. There is no paging, and no remote command (`ssh host command`).

`show interfaces random-detect` has the columns of Dell's printed example, `show version` the fields that
public captures of N-series switches have; the other shows have the fields that manuals of NETGEAR and Extreme
list, in a layout of our own. The header of the running configuration is the one that many public
configurations have; that it sorts routes is our own choice.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

from switchsim.device import Answer, column_table, mac_address, serial_number
from switchsim.grammar import Values
from switchsim.icos_sheet import (
    ARGUMENTS,
    BLOCKS,
    BRIDGING,
    COLOURS,
    DSCP_COUNT,
    EVERYWHERE,
    INSIDE,
    OF_PORT,
    PRIORITIES,
    QUEUES,
    ROUTED,
    SWITCH,
    TRUSTS,
    open_class,
)
from switchsim.modes import (
    Action,
    Mode,
    Modes,
    Session,
    SheetDevice,
    ends,
    goes_to,
    leaves,
    saves,
    shows,
    shows_port,
)
from switchsim.settings import Facts

MAX_PORTS: Final = 128
INVALID: Final = "                ^\n% Invalid input detected at '^' marker.\n"
INCOMPLETE: Final = "Command not found / Incomplete command. Use ? to list commands.\n"
QUESTION: Final = (
    "This operation may take a few minutes.\n"
    "Management interfaces will not be available during this time.\n\n"
    "Are you sure you want to save? (y/n) "
)
SAVED: Final = "\nConfig file 'startup-config' created successfully .\n\nConfiguration Saved!\n"


class IcosSession(Session):
    """One command-line session."""

    refusals: ClassVar[Mapping[str, str]] = {
        "% Unrecognized": INVALID.rstrip("\n"),
        "% Incomplete": INCOMPLETE.rstrip("\n"),
    }

    def enter(self, line: str) -> Answer:
        """Execute one line, which may answer `Are you sure you want to save?`."""
        if self.mode != "asking":
            return super().enter(line)
        self.go("exec")
        if line.strip().lower() != "y":
            return Answer("\nConfiguration Not Saved!\n")
        return super().enter("write memory confirm")


class IcosDevice(SheetDevice):
    """One switch, whose ports 1 to `ports` are named by a pattern: `0/{n}`, `1/0/{n}` or `te1/0/{n}`."""

    usual_ports: ClassVar[int] = 48
    boxes: ClassVar[Mapping[str, Mapping[str, str]]] = {
        "n4000": {"model": "N4032F"},
        "n3000": {"model": "N3048"},
    }
    session_class = IcosSession
    opening: ClassVar[Sequence[str]] = ("enable", "configure")

    def __init__(
        self, name: str = "icos1", ports: int = 16, pattern: str = "te1/0/{n}", model: str = "N4032F"
    ) -> None:
        self.modes = MODES
        names = [pattern.replace("{n}", str(number)) for number in range(1, ports + 1)]
        super().__init__(name, names, MAX_PORTS, model, RELEASE)


def _ask(session: IcosSession, _: Values) -> str:
    session.go("asking")
    return QUESTION


# --- what is shown -----------------------------------------------------------------------------------------

RELEASE: Final = "6.6.3.10"
_LABEL_WIDTH: Final = 47
_NAMED: Final[Mapping[int, str]] = {
    **{8 * n: f"cs{n}" for n in range(1, 8)},
    **{8 * n + 2 * m: f"af{n}{m}" for n in range(1, 5) for m in range(1, 4)},
    0: "be/cs0",
    46: "ef",
}


def _field(label: str, value: object) -> str:
    return f"{label.ljust(_LABEL_WIDTH, '.')} {value}\n"


def _hosts(device: IcosDevice) -> str:
    """`show hosts` without any host that it knows."""
    return "\n" + _field("Host name", device.name)


def _version(device: IcosDevice) -> str:
    """`show version`."""
    return (
        "\n"
        + _field("Machine Description", "Dell Networking Switch")
        + _field("System Model ID", device.model)
        + _field("Machine Type", f"Dell Networking {device.model}")
        + _field("Serial Number", serial_number(device.name))
        + _field("Burned In MAC Address", mac_address(device.name))
        + _field("Software Version", device.release)
    )


def _neighbours(device: IcosDevice) -> str:
    """`show lldp remote-device all`."""
    titles = ("Interface", "RemID", "Chassis ID", "Port ID", "System Name")
    rows = [
        (port, str(number), mac_address(system), name, system)
        for number, (port, (system, name)) in enumerate(device.neighbours.items(), start=1)
    ]
    return f"\nLLDP Remote Device Summary\n\nLocal\n{column_table(titles, rows)}"


def _trust(device: IcosDevice, port: str) -> str:
    """`show classofservice trust`."""
    mode = device.fact(port, "trust")
    queue = device.fact(port, "queue-of-priority", device.fact(port, "default-priority"))
    others = {"ip-dscp": "Non-IP", "untrusted": "Untrusted"}
    rest = f"\n{others[mode]} Traffic Class: {queue}\n" if mode in others else ""
    return f"\nClass of Service Trust Mode: {TRUSTS[mode]}\n{rest}"


def _priority_map(device: IcosDevice, port: str) -> str:
    """`show classofservice dot1p-mapping`."""
    queues_of = (device.fact(port, "queue-of-priority", priority) for priority in range(PRIORITIES))
    rows = "".join(f"      {n}               {queue}\n" for n, queue in enumerate(queues_of))
    return f"\nUser Priority   Traffic Class\n-------------   -------------\n{rows}"


def _dscp_map(device: IcosDevice) -> str:
    """`show classofservice ip-dscp-mapping`."""
    queues_of = (device.fact("", "queue-of-dscp", dscp) for dscp in range(DSCP_COUNT))
    rows = "".join(f"{_dscp(n):>15}    {queue:>9}\n" for n, queue in enumerate(queues_of))
    return f"\n   IP DSCP         Traffic Class\n-------------      -------------\n{rows}"


def _dscp(number: int) -> str:
    return f"{number}({_NAMED[number]})" if number in _NAMED else str(number)


def _queues(device: IcosDevice, port: str) -> str:
    """`show interfaces cos-queue`."""
    rows = "".join(
        f"{n:<10} {bandwidth:<16} {'Strict' if device.fact(port, 'strict', n) else 'Weighted':<16} "
        f"{'WRED' if device.fact(port, 'random-detect', n) else 'Tail Drop'}\n"
        for n, bandwidth in enumerate(device.fact(port, "min-bandwidth"))
    )
    return (
        "\n"
        + _field("Interface", port)
        + _field("Interface Shaping Rate", device.fact(port, "shape"))
        + _field("WRED Decay Exponent", device.fact(port, "exponent"))
        + "\nQueue Id   Min. Bandwidth   Scheduler Type   Queue Management Type\n"
        + "--------   --------------   --------------   ---------------------\n"
        + rows
    )


def _curves(device: IcosDevice, port: str) -> str:
    """`show interfaces random-detect`."""
    rows = ""
    for n in range(QUEUES):
        mode, *numbers = device.fact(port, "curve", n)
        low, high, scale = (
            _row(numbers[start : start + COLOURS]) for start in range(0, len(numbers), COLOURS)
        )
        rows += f"{n:<9} {low:<17} {high:<17} {scale:<23} {'Yes' if mode == 'ecn' else 'No'}\n"
    return (
        f"\n{_field('Interface', port)}\n"
        "Queue ID  WRED Minimum      WRED Maximum      WRED Drop               ECN Enabled\n"
        "          Threshold         Threshold         Probability Scale\n"
        "--------  ----------------  ----------------  ----------------------  -----------\n"
        f"{rows}"
    )


def _row(values: Sequence[int]) -> str:
    return "/".join(f"{value:>3}" if value < 100 else str(value) for value in values).strip()


def _running_config(device: IcosDevice) -> str:
    """`show running-config`: what differs from the switch as delivered."""
    facts = device.configuration
    blocks = facts.blocks
    lines = [
        "!Current Configuration:",
        "!",
        f'!System Description "{device.name}, emulator, Linux"',
        f'!System Software Version "{device.release}"',
        "!",
        "configure",
        *MODES.printed(facts),
    ]
    for head in facts.heads("class-map "):
        lines += [f"{head} {facts[head, 'family']}", *MODES.printed(facts, head), "exit"]
    for head in facts.heads("policy-map "):
        lines.append(head)
        for each in facts.heads("", head):
            lines += [each, *MODES.printed(facts, f"{head}\n{each}"), "exit"]
        lines.append("exit")
    for port in device.ports:
        if settings := list(_port_lines(blocks[f"interface {port}"], f"interface {port}")):
            lines += [f"interface {port}", *settings, "exit", "!"]
    return "\n".join([*lines, "exit", ""])


def _port_lines(facts: Facts, place: str) -> Iterator[str]:
    yield from MODES.printed(facts, place, (*OF_PORT, *EVERYWHERE))
    if bridging := MODES.printed(facts, place, BRIDGING):
        yield from ("datacenter-bridging", *bridging, "exit")
    yield from MODES.printed(facts, place, ROUTED)


_USER: Final[Mapping[str, Action]] = {
    "enable": goes_to("exec"),
    "exit": leaves,
    "logout": ends,
    "terminal length {length}": lambda _, __: None,
}
_EXEC: Final[Mapping[str, Action]] = {
    **_USER,
    "configure": goes_to("config"),
    "write memory": _ask,
    "write memory confirm": saves(SAVED),
    "show version": shows(_version),
    "show hosts": shows(_hosts),
    "show lldp remote-device all": shows(_neighbours),
    "show running-config": shows(_running_config),
    "show classofservice ip-dscp-mapping": shows(_dscp_map),
    "show classofservice trust {interface}": shows_port(_trust),
    "show classofservice dot1p-mapping {interface}": shows_port(_priority_map),
    "show interfaces cos-queue {interface}": shows_port(_queues),
    "show interfaces random-detect {interface}": shows_port(_curves),
}
_OPEN_CLASS: Final = {
    "class-map match-all {name}": open_class,
    "class-map match-all {name} {family}": open_class,
}
MODES: Final = Modes(
    {
        "user": Mode("({device}) >", _USER),
        "exec": Mode("({device}) #", _EXEC),
        "config": Mode(
            "({device}) (Config)#", {**INSIDE, **_OPEN_CLASS}, "exec", rows=SWITCH, rows_of_ports=EVERYWHERE
        ),
        **BLOCKS,
        "asking": Mode(""),
    },
    ARGUMENTS,
)
