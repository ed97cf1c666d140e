// SPDX-License-Identifier: Apache-2.0
// The least that a P4 program needs to forward IPv4: longest prefix match, TTL, checksum, addresses. What our
// own program does beyond it, benchmarks/bmv2_throughput.py puts a price on.

#include <core.p4>
#include <v1model.p4>

header ethernet_t {
    bit<48> destination;
    bit<48> source;
    bit<16> ether_type;
}

header ipv4_t {
    bit<8> version_and_words;
    bit<8> traffic_class;
    bit<16> total_bytes;
    bit<16> identification;
    bit<16> flags_and_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
    bit<32> destination;
}

struct headers_t {
    ethernet_t ethernet;
    ipv4_t ipv4;
}

struct metadata_t {}

parser PacketParser(
        packet_in packet,
        out headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(headers.ethernet);
        transition select(headers.ethernet.ether_type) {
            0x0800: ipv4;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(headers.ipv4);
        transition accept;
    }
}

control ChecksumVerification(inout headers_t headers, inout metadata_t metadata) {
    apply {}
}

control Forwarding(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    action drop() {
        mark_to_drop(standard_metadata);
    }

    action forward(bit<9> port, bit<48> neighbour) {
        standard_metadata.egress_spec = port;
        headers.ethernet.source = headers.ethernet.destination;
        headers.ethernet.destination = neighbour;
        headers.ipv4.ttl = headers.ipv4.ttl - 1;
    }

    table ipv4_routes {
        key = { headers.ipv4.destination: lpm @name("destination"); }
        actions = { forward; drop; }
        default_action = drop();
        size = 4096;
    }

    apply {
        if (headers.ipv4.isValid()) {
            ipv4_routes.apply();
        } else {
            drop();
        }
    }
}

control Leaving(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    apply {}
}

control ChecksumUpdate(inout headers_t headers, inout metadata_t metadata) {
    apply {
        update_checksum(
            headers.ipv4.isValid(),
            {
                headers.ipv4.version_and_words,
                headers.ipv4.traffic_class,
                headers.ipv4.total_bytes,
                headers.ipv4.identification,
                headers.ipv4.flags_and_offset,
                headers.ipv4.ttl,
                headers.ipv4.protocol,
                headers.ipv4.source,
                headers.ipv4.destination
            },
            headers.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control PacketDeparser(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.ethernet);
        packet.emit(headers.ipv4);
    }
}

V1Switch(
    PacketParser(), ChecksumVerification(), Forwarding(), Leaving(), ChecksumUpdate(), PacketDeparser()) main;
