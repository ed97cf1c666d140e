// SPDX-License-Identifier: Apache-2.0
// What a packet looks like when it leaves, and that it has left its queue.

control Departure(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    action leave_queue() {
        departed.write((bit<32>)(standard_metadata.egress_port ++ metadata.queue),
            standard_metadata.egress_global_timestamp
            ++ (standard_metadata.deq_qdepth == 0 ? 1w1 : 1w0) ++ metadata.ticket);
    }

    // MAC addresses of the port and of whoever is behind it. The lifetime counts in the upper byte of its word, and
    // the checksum follows it (RFC 1624).
    action set_neighbour(mac_address_t address, mac_address_t neighbour) {
        headers.ethernet.source = address;
        headers.ethernet.destination = neighbour;
        headers.ipv4.ttl = headers.ipv4.ttl - 1;
        headers.ipv4.checksum = headers.ipv4.checksum + (headers.ipv4.checksum >= 0xFEFF ? 16w0x0101 : 16w0x0100);
        headers.ipv6.hop_limit = headers.ipv6.hop_limit - 1;
    }

    action no_neighbour() {
        refused.count((bit<32>)REFUSED_NO_NEIGHBOUR);
        mark_to_drop(standard_metadata);
    }

    @id(0x02000007)
    table neighbours {
        key = { standard_metadata.egress_port: exact @name("port"); }
        actions = { set_neighbour; @defaultonly no_neighbour; }
        const default_action = no_neighbour();
        size = PORTS;
    }

    apply {
        if (standard_metadata.egress_port != CPU_PORT && !headers.packet_out.isValid()) {
            leave_queue();
            neighbours.apply();
        }
    }
}
