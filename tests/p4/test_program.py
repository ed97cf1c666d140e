"""The compiled program of the package belongs to the P4 sources beside it."""

import json
import re
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

from bmv2_tests.model import Refusal
from mltswitch.errors import MachineError
from mltswitch.p4.entries import schema_of
from mltswitch.p4.program import (
    DEVICE_CONFIG_FILE,
    FOLDER,
    MAIN_SOURCE,
    P4INFO_FILE,
    Program,
    read_program,
    refusal_reasons,
    shipped_program,
    source_files,
    source_sha256,
    summary,
)
from mltswitch.p4.switch import Count, QueueCounters, pipeline_config


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The package's P4 folder, to be changed."""
    for path in (*source_files(), FOLDER / DEVICE_CONFIG_FILE, FOLDER / P4INFO_FILE):
        shutil.copy(path, tmp_path)
    return tmp_path


def test_the_compiled_program_is_that_of_the_sources(program: Program) -> None:
    """Fails after a change of the P4 sources until `mltswitch p4 build` has compiled them."""
    assert program.source_sha256 == source_sha256()


def test_every_source_is_part_of_the_program() -> None:
    """So that the hash covers what is compiled, and nothing else."""
    included: set[str] = set()
    waiting = [MAIN_SOURCE]
    while waiting:
        name = waiting.pop()
        included.add(name)
        lines = (FOLDER / name).read_text().splitlines()
        waiting += [line.split('"')[1] for line in lines if line.startswith('#include "')]
    assert included == {path.name for path in source_files()}


def test_any_change_of_a_source_changes_the_hash(copied: Path) -> None:
    before = source_sha256(copied)
    assert before == source_sha256()
    seen = {before}
    for path in source_files(copied):
        text = path.read_bytes()
        path.write_bytes(text + b"\n")
        seen.add(source_sha256(copied))
        path.write_bytes(text)
    assert len(seen) == 1 + len(source_files())
    assert source_sha256(copied) == before


def test_a_new_source_a_missing_one_and_another_name_change_the_hash(copied: Path) -> None:
    before = source_sha256(copied)
    (copied / "more.p4").write_text("")
    grown = source_sha256(copied)
    (copied / "more.p4").rename(copied / "most.p4")
    renamed = source_sha256(copied)
    (copied / "most.p4").unlink()
    (copied / "refusals.p4").unlink()
    assert len({before, grown, renamed, source_sha256(copied)}) == 4


def test_no_path_of_the_machine_that_built_it_is_shipped(program: Program) -> None:
    for text in (program.device_config.decode(), program.p4info_text):
        assert "source_info" not in text
        assert '"/' not in text
        assert "/usr/" not in text
        assert "/tmp/" not in text  # noqa: S108  (looked for, not used)


def test_the_cookie_is_the_head_of_the_hash(program: Program) -> None:
    assert f"{program.cookie:016x}" == program.source_sha256[:16]
    assert pipeline_config(program).cookie.cookie == program.cookie


def test_json_and_p4info_describe_the_same_program(program: Program) -> None:
    found = summary(program)
    schema = schema_of(pipeline_config(program).p4info)
    assert {entry.name: entry.size for entry in found.tables} == {
        name: table.size for name, table in schema.tables.items()
    }
    assert found.counters == {name: counter.size for name, counter in schema.counters.items()}
    assert found.meters == {name: meter.size for name, meter in schema.meters.items()}


def test_the_summary_tells_keys_and_actions(program: Program) -> None:
    found = {entry.name: entry for entry in summary(program).tables}
    assert found["queues"].key == ("port (exact)", "queue (exact)")
    assert {"set_threshold_and_limit", "set_limit"} <= set(found["queues"].actions)
    assert found["ipv4_routes"].key == ("destination (lpm)",)
    assert summary(program).compiler.startswith("p4c ")


def test_refusals_are_named_and_numbered_as_in_the_source() -> None:
    assert refusal_reasons() == {reason.value: reason.name.lower() for reason in Refusal}


def test_decisions_are_counted_in_the_order_of_the_source() -> None:
    found = re.findall(r"const bit<2> (\w+) = (\d);", (FOLDER / "admission.p4").read_text())
    names = [field.name for field in fields(QueueCounters)]
    assert {int(index): name.lower() for name, index in found} == dict(enumerate(names))


def test_what_arrived_is_the_sum_of_all_decisions() -> None:
    cells = [Count(10**number, 64 * 10**number) for number in range(4)]
    assert QueueCounters(*cells).arrived == Count(1111, 64 * 1111)


def test_what_is_shipped_is_read_once() -> None:
    assert shipped_program() is shipped_program()


@pytest.mark.parametrize("missing", [DEVICE_CONFIG_FILE, P4INFO_FILE])
def test_a_missing_file_says_how_it_is_made(copied: Path, missing: str) -> None:
    (copied / missing).unlink()
    with pytest.raises(MachineError, match=r"No such file.*mltswitch p4 build") as raised:
        read_program(copied)
    assert raised.value.where == str(copied / missing)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"__meta__": {"version": [2, 23]}}', "{", "\udcff"])
def test_a_damaged_file_says_how_it_is_made(copied: Path, content: str) -> None:
    (copied / DEVICE_CONFIG_FILE).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(MachineError, match="mltswitch p4 build"):
        read_program(copied)


def test_a_hash_that_is_none_is_damage(copied: Path) -> None:
    data = json.loads((copied / DEVICE_CONFIG_FILE).read_text())
    data["__meta__"]["mltswitch"]["source_sha256"] = "a house"
    (copied / DEVICE_CONFIG_FILE).write_text(json.dumps(data))
    with pytest.raises(MachineError, match="is no P4 program that mltswitch compiled"):
        read_program(copied)
