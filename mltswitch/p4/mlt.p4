// A switch that does what MLT asks (section 5.2): strict priority by DSCP, and in each queue unimportant
// packets dropped and important ones marked above S, everything dropped at L. P4-16 for v1model; runs on
// BMv2's simple_switch_grpc with --priority-queues 8.

#include <core.p4>
#include <v1model.p4>

#define PORTS 512
#define PLACES 4096
#define ROUTES 4096
#define GROUPS 256
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
#include "forwarding.p4"
#include "classification.p4"
#include "admission.p4"

counter(16, CounterType.packets) refused;

control PacketIngress(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    apply {
        metadata.refusal = ACCEPTED;
        if (standard_metadata.parser_error != error.NoError) {
            metadata.refusal = REFUSED_MALFORMED;
        } else if (!headers.ipv4.isValid() && !headers.ipv6.isValid()) {
            metadata.refusal = REFUSED_NOT_IP;
        } else if (standard_metadata.checksum_error == 1) {
            metadata.refusal = REFUSED_CHECKSUM;
        } else if (headers.ethernet.destination[40:40] == 1) {
            metadata.refusal = REFUSED_GROUP_ADDRESS;
        } else {
            Trust.apply(metadata, standard_metadata);
            Ageing.apply(headers, metadata);
            if (metadata.refusal == ACCEPTED) {
                Forwarding.apply(headers, metadata, standard_metadata);
            }
            if (metadata.refusal == ACCEPTED) {
                Classification.apply(headers, metadata, standard_metadata);
                Admission.apply(headers, metadata, standard_metadata);
            }
        }
        if (metadata.refusal != ACCEPTED) {
            refused.count((bit<32>)metadata.refusal);
            mark_to_drop(standard_metadata);
        }
    }
}

control PacketEgress(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    apply {
        Departure.apply(metadata, standard_metadata);
        // The sender addressed this switch; the next hop hears from the same address.
        headers.ethernet.source = headers.ethernet.destination;
        headers.ethernet.destination = metadata.neighbour;
    }
}

V1Switch(
    PacketParser(), ChecksumVerification(), PacketIngress(), PacketEgress(), ChecksumUpdate(),
    PacketDeparser()) main;
