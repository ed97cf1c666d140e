"""`mltswitch wire`: the dissector on standard output or in a file, and the fields of every header."""

from pathlib import Path

from mltswitch.wire.headers import AGENT, HEADERS
from mltswitch.wire.wireshark import dissector_text
from tests.cli.test_cli import Run, refused, run

__all__ = ["run"]


def test_the_dissector_is_printed_or_written(run: Run, tmp_path: Path) -> None:
    assert run("wire", "dissector").out == dissector_text()
    outcome = run("wire", "dissector", "-o", "mltswitch.lua")
    assert outcome.code == 0
    assert outcome.out == "mltswitch.lua: EtherType 0x88b5, UDP port 18515\n"
    assert (tmp_path / "mltswitch.lua").read_text(encoding="utf-8") == dissector_text()


def test_a_file_that_cannot_be_written(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    line = refused(run("wire", "dissector", "-o", "taken/x.lua"), tmp_path, leaves=("taken",))
    assert "taken" in line


def test_help_says_where_wireshark_looks(run: Run) -> None:
    text = run("wire", "dissector", "--help").out
    assert "~/.local/lib/wireshark/plugins" in text
    assert "mlt_agent.port" in text
    for command in ("dissector", "headers"):
        assert "Example" in run("wire", command, "--help").out


def test_headers_as_json_and_tables(run: Run) -> None:
    document = run("wire", "headers", "--json").json()
    assert document["source_route_ether_type"] == 0x88B5
    assert document["agent_port"] == 18515
    for header, found in zip(HEADERS, document["headers"], strict=True):
        assert found["name"] == header.name
        assert [(f["name"], f["bits"]) for f in found["fields"]] == [(f.name, f.bits) for f in header.fields]
    text = run("wire", "headers").out
    for header in HEADERS:
        assert f"{header.title}: {header.size_bytes} bytes" in text
        for field in header.fields:
            assert field.name in text
    for flag in AGENT.field("flags").flags:
        assert f"0x{flag.number:02x}" in text
        assert flag.name in text
