"""What an emulated FASTPATH switch shows.

`show interfaces random-detect` has the columns of Dell's printed example, `show version` the fields that
public captures of N-series switches have; the other shows have the fields
that manuals of NETGEAR and Extreme list, in a layout of ours. The header of the running configuration is
the one that many public configurations have; that it sorts routes is ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchsim.device import column_table, mac_address, serial_number
from switchsim.icos_diffserv import DSCP_COUNT, QUEUES
from switchsim.icos_sheet import (
    BRIDGING,
    COLOURS,
    EVERYWHERE,
    OF_PORT,
    PORT,
    PRIORITIES,
    ROUTED,
    SWITCH,
    TRUSTS,
)
from switchsim.settings import Facts, SheetDevice, by_place

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


def hosts(device: SheetDevice) -> str:
    """`show hosts` without any host that it knows."""
    return "\n" + _field("Host name", device.name)


def version(device: SheetDevice) -> str:
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


def neighbours(device: SheetDevice) -> str:
    """`show lldp remote-device all`."""
    titles = ("Interface", "RemID", "Chassis ID", "Port ID", "System Name")
    rows = [
        (port, str(number), mac_address(system), name, system)
        for number, (port, (system, name)) in enumerate(device.neighbours.items(), start=1)
    ]
    return f"\nLLDP Remote Device Summary\n\nLocal\n{column_table(titles, rows)}"


def trust(device: SheetDevice, port: str) -> str:
    """`show classofservice trust`."""
    mode = device.fact(port, "trust")
    queue = device.fact(port, "queue-of-priority", device.fact(port, "default-priority"))
    others = {"ip-dscp": "Non-IP", "untrusted": "Untrusted"}
    rest = f"\n{others[mode]} Traffic Class: {queue}\n" if mode in others else ""
    return f"\nClass of Service Trust Mode: {TRUSTS[mode]}\n{rest}"


def priority_map(device: SheetDevice, port: str) -> str:
    """`show classofservice dot1p-mapping`."""
    queues_of = (device.fact(port, "queue-of-priority", priority) for priority in range(PRIORITIES))
    rows = "".join(f"      {n}               {queue}\n" for n, queue in enumerate(queues_of))
    return f"\nUser Priority   Traffic Class\n-------------   -------------\n{rows}"


def dscp_map(device: SheetDevice) -> str:
    """`show classofservice ip-dscp-mapping`."""
    queues_of = (device.fact("", "queue-of-dscp", dscp) for dscp in range(DSCP_COUNT))
    rows = "".join(f"{_dscp(n):>15}    {queue:>9}\n" for n, queue in enumerate(queues_of))
    return f"\n   IP DSCP         Traffic Class\n-------------      -------------\n{rows}"


def _dscp(number: int) -> str:
    return f"{number}({_NAMED[number]})" if number in _NAMED else str(number)


def queues(device: SheetDevice, port: str) -> str:
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


def curves(device: SheetDevice, port: str) -> str:
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


def running_config(device: SheetDevice) -> str:
    """`show running-config`: what differs from the switch as delivered."""
    facts = by_place(device.configuration)
    lines = [
        "!Current Configuration:",
        "!",
        f'!System Description "{device.name}, emulator, Linux"',
        f'!System Software Version "{device.release}"',
        "!",
        "configure",
        *SWITCH.printed(
            {fact: value for fact, value in facts.get("", {}).items() if fact[1] != "diffserv"}, ""
        ),
        *device.fact("", "diffserv").lines(),
    ]
    for port in device.ports:
        if settings := list(_port_lines(facts.get(port, {}), port)):
            lines += [f"interface {port}", *settings, "exit", "!"]
    return "\n".join([*lines, "exit", ""])


def _port_lines(facts: Facts, port: str) -> Iterator[str]:
    yield from PORT.printed(facts, port, (*OF_PORT, *EVERYWHERE))
    if bridging := PORT.printed(facts, port, BRIDGING):
        yield from ("datacenter-bridging", *bridging, "exit")
    yield from PORT.printed(facts, port, ROUTED)
