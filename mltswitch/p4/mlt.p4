// SPDX-License-Identifier: Apache-2.0
// A switch that does what MLT asks (section 5.2): strict priority by DSCP, and in each queue unimportant
// packets dropped and important ones marked above S, everything dropped at L. P4-16 for v1model; runs on
// BMv2's simple_switch_grpc with --priority-queues 8 --cpu-port 255.
//
// What BMv2 needs for a packet is the number of its tables and conditions, and of their primitives. So a step is
// one lookup, whose action does all there is to do, and a packet that leads nowhere goes the way of all others, to
// a port without queues.

#include <core.p4>
#include <v1model.p4>

#define PORTS 512
#define NOWHERE 511
#define CPU_PORT 255
#define PLACES 4096
#define ROUTES 4096
#define GROUPS 255
#define GROUP_MEMBERS 4096
#define DSCP_ENTRIES 4096
#define BACKGROUND_QUEUE 0
#define NOT_ECN_CAPABLE 0
#define CONGESTION_EXPERIENCED 3
#define METER_GREEN 0
#define IDLE_MICROSECONDS 1000000

#include "wire.p4"
#include "headers.p4"
#include "refusals.p4"
#include "parser.p4"
#include "checksums.p4"

#include "admission.p4"
#include "trust.p4"
#include "forwarding.p4"
#include "departure.p4"

control PacketIngress(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    apply {
        if (standard_metadata.parser_error == error.NoError && standard_metadata.checksum_error == 0) {
            Trust.apply(headers, metadata, standard_metadata);
            Forwarding.apply(headers, metadata, standard_metadata);
            Admission.apply(headers, metadata, standard_metadata);
        } else {
            Exceptions.apply(headers, metadata, standard_metadata);
        }
    }
}

control PacketEgress(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    apply {
        Departure.apply(headers, metadata, standard_metadata);
    }
}

V1Switch(
    PacketParser(), ChecksumVerification(), PacketIngress(), PacketEgress(), ChecksumUpdate(),
    PacketDeparser()) main;
