"""Deliberate faults of one line each: the comparison with the model must see every one of them."""

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from bmv2_tests.differential import compare
from bmv2_tests.packets import base_lines
from bmv2_tests.switch import Bmv2, patiently
from bmv2_tests.test_queues import overflow, takes_unimportant_packets_when_idle
from mltswitch.p4.build import Compiler, compile_program
from mltswitch.p4.program import DEVICE_CONFIG_FILE, FOLDER, P4INFO_FILE, Program, source_files

ROUNDS = 6
PACKETS = 600


@dataclass(frozen=True)
class Fault:
    """One line of a source file, and a wrong one in its place."""

    name: str
    file: str
    right: str
    wrong: str


FAULTS = (
    Fault("beyond S", "admission.p4", "waiting < ecn_threshold_bytes", "waiting <= ecn_threshold_bytes"),
    Fault("beyond L", "admission.p4", "waiting >= limit_bytes", "waiting > limit_bytes"),
    Fault("no mark", "admission.p4", "                mark();\n", ""),
    Fault("no mark in IPv6", "admission.p4", "        headers.ipv6.ecn = CONGESTION_EXPERIENCED;\n", ""),
    Fault(
        "Not-ECT inverted",
        "admission.p4",
        "metadata.ecn == NOT_ECN_CAPABLE",
        "metadata.ecn != NOT_ECN_CAPABLE",
    ),
    Fault("no ticket", "admission.p4", "admitted + standard_metadata.packet_length", "admitted"),
    Fault(
        "nothing leaves", "admission.p4", "left_bytes.write((bit<32>)metadata.place, metadata.ticket);", ""
    ),
    Fault("policer ignored", "admission.p4", " || color != METER_GREEN", ""),
    Fault("limit exempt", "admission.p4", "is_selective == 0 || waiting", "waiting"),
    Fault("TTL kept", "forwarding.p4", "headers.ipv4.ttl = headers.ipv4.ttl - 1;", ""),
    Fault("TTL 1 lives", "forwarding.p4", "headers.ipv4.ttl <= 1", "headers.ipv4.ttl < 1"),
    Fault("no pop", "forwarding.p4", "            headers.hops.pop_front(1);\n", ""),
    Fault("EtherType kept", "forwarding.p4", "                end_source_route();\n", ""),
    Fault(
        "9-bit port",
        "forwarding.p4",
        "headers.hops[0].port < PORTS ? metadata.refusal : REFUSED_NO_QUEUE",
        "metadata.refusal",
    ),
    Fault(
        "member skipped", "forwarding.p4", "member < members ? member : 0", "member <= members ? member : 0"
    ),
    Fault(
        "options not covered",
        "checksums.p4",
        "ipv4.destination, ipv4_options.options }",
        "ipv4.destination }",
    ),
    Fault(
        "everyone trusted",
        "classification.p4",
        "const default_action = NoAction();\n        size = PORTS;",
        "const default_action = trust(1);\n        size = PORTS;",
    ),
    Fault("anybody's source route", "forwarding.p4", "metadata.map == 0", "false"),
    Fault("group addresses", "mlt.p4", "headers.ethernet.destination[40:40] == 1", "false"),
    Fault(
        "any version",
        "parser.p4",
        "verify(headers.source_route.version == SOURCE_ROUTE_VERSION, error.WrongVersion);",
        "",
    ),
    Fault("error passed on", "mlt.p4", "standard_metadata.parser_error != error.NoError", "false"),
)

NEVER_IDLE = Fault("never idle", "admission.p4", "standard_metadata.deq_qdepth == 0", "false")


@pytest.fixture(scope="module")
def mutants(
    request: pytest.FixtureRequest, compiler: Compiler, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, Future[Program]]:
    """The program with each fault that is asked for, by its name: all processors compile, then one compares.

    One after the other, they took longer than all comparisons.
    """
    items = (item for item in request.session.items if item.path == request.path)
    wanted = {item.callspec.params["fault"] for item in items if hasattr(item, "callspec")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return {
            fault.name: pool.submit(mutated, fault, compiler, tmp_path_factory.mktemp("mutant"))
            for fault in (NEVER_IDLE, *FAULTS)
            if fault in wanted
        }


def mutated(fault: Fault, compiler: Compiler, folder: Path) -> Program:
    for path in source_files(FOLDER):
        shutil.copy(path, folder)
    target = folder / fault.file
    text = target.read_text()
    assert text.count(fault.right) == 1, f"{fault.file} has changed: {fault.right}"
    target.write_text(text.replace(fault.right, fault.wrong))
    files = compile_program(compiler, folder)
    return Program(files[P4INFO_FILE], files[DEVICE_CONFIG_FILE].encode(), "0" * 64)


@pytest.fixture
def mutant(fault: Fault, mutants: Mapping[str, Future[Program]]) -> Program:
    """The program with the fault in it."""
    return mutants[fault.name].result()


@pytest.mark.parametrize("fault", [NEVER_IDLE], ids=lambda fault: fault.name)
def test_a_count_that_is_not_set_right_when_idle_is_seen(module_switch: Bmv2, mutant: Program) -> None:
    """The model's queues lose nothing, so only a queue that overflows shows this one."""
    module_switch.load(mutant, base_lines())
    patiently(lambda: overflow(module_switch, 4))
    assert not takes_unimportant_packets_when_idle(module_switch)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_comparison_sees_the_fault(module_switch: Bmv2, mutant: Program, fault: Fault) -> None:
    for seed in range(1, ROUNDS + 1):
        if compare(module_switch, mutant, seed, packets=PACKETS):
            return
    pytest.fail(f"{fault.name}: nothing differs in {ROUNDS * PACKETS} packets")
