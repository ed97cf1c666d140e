"""`mltswitch wire`: our packet headers, and a Wireshark dissector of them."""

from pathlib import Path

import click

from mltswitch.cli.output import console, json_option, print_json, table
from mltswitch.outputs import write_outputs
from mltswitch.wire import AGENT_PORT, ETHERTYPE_SOURCE_ROUTE
from mltswitch.wire.headers import HEADERS
from mltswitch.wire.tables import bytes_text, number_text
from mltswitch.wire.wireshark import dissector_text


@click.group(epilog="\b\nExample:\n  mltswitch wire dissector -o mltswitch.lua")
def wire() -> None:
    """The source route of P4 switches and the header of host agents."""


@wire.command(
    epilog="\b\nExamples:\n"
    "  mkdir -p ~/.local/lib/wireshark/plugins\n"
    "  mltswitch wire dissector -o ~/.local/lib/wireshark/plugins/mltswitch.lua\n"
    "  mltswitch wire dissector -o mltswitch.lua\n"
    "  tshark -X lua_script:mltswitch.lua -r capture.pcap -Y mlt_agent"
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the dissector here."
)
def dissector(output: Path | None) -> None:
    """Print a Wireshark dissector, in Lua.

    Wireshark and tshark load every Lua file of their plug-in folder: ~/.local/lib/wireshark/plugins on Linux
    and macOS, %APPDATA%\\Wireshark\\plugins on Windows ("Personal Lua Plugins" under Help, About, Folders).
    The preference mlt_agent.port is the UDP port of the agents.
    """
    if output is None:
        click.echo(dissector_text(), nl=False)
        return
    write_outputs([(output, dissector_text())])
    click.echo(f"{output}: EtherType 0x{ETHERTYPE_SOURCE_ROUTE:04x}, UDP port {AGENT_PORT}")


@wire.command(epilog="\b\nExamples:\n  mltswitch wire headers\n  mltswitch wire headers --json")
@json_option
def headers(as_json: bool) -> None:
    """Print the fields of each header, in network order."""
    if as_json:
        print_json(
            {
                "source_route_ether_type": ETHERTYPE_SOURCE_ROUTE,
                "agent_port": AGENT_PORT,
                "headers": HEADERS,
            }
        )
        return
    for header in HEADERS:
        rows = [
            (bytes_text(offset, field), field.bits, field.name, field.meaning)
            for offset, field in header.with_offsets()
        ]
        title = f"{header.title}: {header.size_bytes} bytes, {header.meaning}"
        console().print(table(title, ("bytes", "bits #", "field", "meaning"), rows))
        for field in header.fields:
            named = [
                (number_text(field, value.number), value.name, value.meaning)
                for value in (*field.values, *field.flags)
            ]
            if named:
                title = f"{header.title}: {'bits' if field.flags else 'values'} of {field.name}"
                console().print(table(title, ("number #", "name", "meaning"), named))
