"""Deliberate faults of one line each: the comparison with the model must see every one of them."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from bmv2_tests.differential import compare
from bmv2_tests.packets import base_lines
from bmv2_tests.switch import Bmv2, patiently, real_only
from bmv2_tests.test_queues import (
    overflow,
    overlooks_a_packet_on_its_way,
    overlooks_the_last_packet,
    takes_unimportant_packets_when_idle,
)
from mltswitch.p4.build import Compiler, compile_program
from mltswitch.p4.program import DEVICE_CONFIG_FILE, FOLDER, P4INFO_FILE, Program, source_files

ROUNDS = 9
PACKETS = 400
PATIENCE = 30


@dataclass(frozen=True)
class Fault:
    """One line of a source file, and a wrong one in its place."""

    name: str
    file: str
    right: str
    wrong: str


FOLD = "    sum = (sum & 0xFFFF) + (sum >> 16); \\\n"
SOURCE_ROUTE_VERSION_CHECK = (
    "verify(headers.source_route.version == SOURCE_ROUTE_VERSION, error.WrongVersion);"
)
FAULTS = (
    Fault("beyond S", "admission.p4", "waiting >= ecn_threshold", "waiting > ecn_threshold"),
    Fault("beyond L", "admission.p4", "waiting >= limit", "waiting > limit"),
    Fault("no mark", "admission.p4", "                    mark();\n", ""),
    Fault("mark without checksum", "checksums.p4", "    headers.ipv4.checksum = ~sum[15:0]; \\\n", ""),
    Fault("checksum folded once", "checksums.p4", FOLD + FOLD, FOLD),
    Fault("no mark in IPv6", "checksums.p4", "    headers.ipv6.field = value\n", "\n"),
    Fault("Not-ECT inverted", "admission.p4", "== NOT_ECN_CAPABLE", "!= NOT_ECN_CAPABLE"),
    Fault("no ticket", "admission.p4", "last_ticket + standard_metadata.packet_length", "last_ticket"),
    Fault("nothing leaves", "departure.p4", "        leave_queue();\n", ""),
    Fault("policer ignored", "admission.p4", "color != METER_GREEN", "false"),
    Fault("policer takes what is dropped", "admission.p4", " && metadata.decision[1:1] == 0", ""),
    Fault("limit selective", "admission.p4", "admit(limit, limit", "admit(0, limit"),
    Fault("too big passes", "admission.p4", "if (is_too_big || metadata", "if (metadata"),
    Fault("back to its port", "admission.p4", " && metadata.may_return == 0", " && false"),
    Fault("tag counts", "admission.p4", "frame_bytes + (bit<32>)metadata.more_link_bytes", "frame_bytes"),
    Fault("TTL kept", "departure.p4", "headers.ipv4.ttl = headers.ipv4.ttl - 1;", ""),
    Fault("hop limit kept", "departure.p4", "headers.ipv6.hop_limit = headers.ipv6.hop_limit - 1;", ""),
    Fault("TTL 1 lives", "admission.p4", "|| metadata.is_expired == 1", ""),
    Fault("no carry", "departure.p4", "16w0x0101 : 16w0x0100", "16w0x0100 : 16w0x0100"),
    Fault("no pop", "forwarding.p4", "        headers.hops.pop_front(1);\n", ""),
    Fault("EtherType kept", "forwarding.p4", "                end_source_route();\n", ""),
    Fault("9-bit port", "forwarding.p4", "headers.hops[0].port < PORTS ?", "true ?"),
    Fault("turn skipped", "forwarding.p4", "metadata.choice + 1", "metadata.choice + 2"),
    Fault(
        "ports not hashed",
        "forwarding.p4",
        "headers.ipv4.protocol, metadata.ports",
        "headers.ipv4.protocol, 32w0",
    ),
    Fault("options not covered", "checksums.p4", ", headers.ipv4_options.options\n", "\n"),
    Fault("everyone trusted", "trust.p4", "        metadata.is_untrusted = 1;\n", ""),
    Fault(
        "code point kept",
        "trust.p4",
        "        set_dscp(dscp);\n    }\n\n    // Frames",
        "    }\n\n    // Frames",
    ),
    Fault("anybody's source route", "forwarding.p4", "metadata.is_untrusted == 1", "false"),
    Fault("any version", "parser.p4", SOURCE_ROUTE_VERSION_CHECK, ""),
    Fault(
        "any length",
        "parser.p4",
        "(bit<32>)(ETHERNET_BYTES + metadata.more_link_bytes) + (bit<32>)headers.ipv4.total_bytes",
        "(bit<32>)headers.ipv4.total_bytes",
    ),
    Fault("martians", "parser.p4", "(0x40 &&& 0xF0, 127,", "(0x40 &&& 0xF0, 126,"),
    Fault("error passed on", "mlt.p4", "standard_metadata.parser_error == error.NoError", "true"),
)

QUEUE_FAULTS = (
    Fault("never idle", "departure.p4", "standard_metadata.deq_qdepth == 0 ?", "false ?"),
    Fault("empty with one waiting", "departure.p4", "deq_qdepth == 0 ?", "deq_qdepth <= 1 ?"),
    Fault("idle after a millisecond", "mlt.p4", "IDLE_MICROSECONDS 1000000", "IDLE_MICROSECONDS 1000"),
)


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
def mutant(fault: Fault, compiler: Compiler, tmp_path: Path) -> Program:
    """The program with the fault in it."""
    return mutated(fault, compiler, tmp_path)


def never_heals(switch: Bmv2) -> bool:
    patiently(lambda: overflow(switch, 4))
    return not takes_unimportant_packets_when_idle(switch)


def overlooks_one_now_and_then(switch: Bmv2) -> bool:
    return any(overlooks_a_packet_on_its_way(switch) for _ in range(PATIENCE))


WAYS_TO_SEE = {
    "never idle": never_heals,
    "empty with one waiting": overlooks_the_last_packet,
    "idle after a millisecond": overlooks_one_now_and_then,
}


@real_only
@pytest.mark.parametrize("fault", QUEUE_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_of_the_count_is_seen(module_switch: Bmv2, mutant: Program, fault: Fault) -> None:
    """The model's queues lose nothing and hold nothing back, so these show in queues alone."""
    module_switch.load(mutant, base_lines())
    assert WAYS_TO_SEE[fault.name](module_switch)


@real_only
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_comparison_sees_the_fault(module_switch: Bmv2, mutant: Program, fault: Fault) -> None:
    for seed in range(1, ROUNDS + 1):
        if compare(module_switch, mutant, seed, packets=PACKETS):
            return
    pytest.fail(f"{fault.name}: nothing differs in {ROUNDS * PACKETS} packets")
