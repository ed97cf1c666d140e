"""`mltswitch wire`: our packet headers, and a Wireshark dissector of them."""

from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import RenderableType

from mltswitch.cli.command import command, group
from mltswitch.cli.options import output_file
from mltswitch.cli.output import Answer, table
from mltswitch.outputs import write_outputs
from mltswitch.wire import AGENT_PORT, ETHERTYPE_SOURCE_ROUTE
from mltswitch.wire.headers import HEADERS
from mltswitch.wire.tables import bytes_text, number_text
from mltswitch.wire.wireshark import dissector_text


@command(
    "mkdir -p ~/.local/lib/wireshark/plugins",
    "mltswitch wire dissector -o ~/.local/lib/wireshark/plugins/mltswitch.lua",
    "mltswitch wire dissector -o mltswitch.lua",
    "tshark -X lua_script:mltswitch.lua -r capture.pcap -Y mlt_agent",
)
def dissector(output: Path | None = output_file("Write the dissector here.")) -> None:
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


@command("mltswitch wire headers", "mltswitch wire headers --json")
def headers() -> Answer:
    """Print the fields of each header, in network order."""
    document = {
        "source_route_ether_type": ETHERTYPE_SOURCE_ROUTE,
        "agent_port": AGENT_PORT,
        "headers": HEADERS,
    }
    return Answer(document, _tables())


def _tables() -> Iterator[RenderableType]:
    for header in HEADERS:
        rows = [
            (bytes_text(offset, field), field.bits, field.name, field.meaning)
            for offset, field in header.with_offsets()
        ]
        title = f"{header.title}: {header.size_bytes} bytes, {header.meaning}"
        yield table(title, "bytes | bits # | field | meaning", rows)
        for field in header.fields:
            named = [
                (number_text(field, value.number), value.name, value.meaning)
                for value in (*field.values, *field.flags)
            ]
            if named:
                title = f"{header.title}: {'bits' if field.flags else 'values'} of {field.name}"
                yield table(title, "number # | name | meaning", named)


wire = group(
    "wire",
    "The source route of P4 switches and the header of host agents.",
    dissector,
    headers,
    examples=("mltswitch wire dissector -o mltswitch.lua",),
)
