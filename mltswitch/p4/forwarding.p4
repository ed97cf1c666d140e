// SPDX-License-Identifier: Apache-2.0
// Which port a packet leaves by: the source route says it, else the longest prefix, where several ports share it
// one by one or flow by flow. MAC addresses are the business of departure.p4.

control Forwarding(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    register<bit<32>>(GROUPS + 1) turns;
    action_selector(HashAlgorithm.identity, GROUP_MEMBERS, 32w32) members;

    // What has left its queue is read here, and not where it is decided upon: BMv2 locks a register as long as an
    // action lasts that uses it, and the thread that sends would wait.
    action leave_by(port_t port) {
        metadata.port = port;
        metadata.place = (bit<32>)(port ++ metadata.queue);
        departed.read(metadata.departed, metadata.place);
    }

    action forward(@refers_to(neighbours, port) port_t port) {
        leave_by(port);
    }

    // Even by the port that the packet came by.
    action forward_back(@refers_to(neighbours, port) port_t port) {
        leave_by(port);
        metadata.may_return = 1;
    }

    // The ports of a group share the flows.
    @action_restriction("group != 0")
    action share_flows(@refers_to(groups, group) bit<8> group) {
        metadata.group = group;
    }

    // They take packets in turn: per-packet ECMP, the paper's alternative to source routes.
    @action_restriction("group != 0")
    action share_packets(@refers_to(groups, group) bit<8> group) {
        metadata.group = group;
        metadata.in_turn = 1;
    }

    action choose() {
        metadata.port = NOWHERE;
        if (metadata.in_turn == 1) {
            turns.read(metadata.choice, (bit<32>)metadata.group);
            metadata.choice = metadata.choice + 1;
            turns.write((bit<32>)metadata.group, metadata.choice);
        } else if (headers.ipv4.isValid()) {
            hash(metadata.choice, HashAlgorithm.crc32, 32w0,
                { headers.ipv4.source_network, headers.ipv4.source_host, headers.ipv4.destination,
                  headers.ipv4.protocol, metadata.ports }, 64w0x100000000);
        } else {
            hash(metadata.choice, HashAlgorithm.crc32, 32w0,
                { headers.ipv6.source, headers.ipv6.destination, headers.ipv6.next_header, metadata.ports },
                64w0x100000000);
        }
    }

    // No host has this address, though the prefix is ours: what a route to nowhere keeps from going in circles.
    action discard() {
        TELL(REFUSED_UNREACHABLE);
    }

    action no_route() {
        REFUSE(REFUSED_NO_ROUTE);
    }

    action refuse_source_route() {
        REFUSE(REFUSED_UNTRUSTED);
    }

    @id(0x02000003)
    table ipv4_routes {
        key = { headers.ipv4.destination: lpm @name("destination"); }
        actions = { forward; forward_back; share_flows; share_packets; discard; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES;
    }

    @id(0x02000004)
    table ipv6_routes {
        key = { headers.ipv6.destination: lpm @name("destination"); }
        actions = { forward; forward_back; share_flows; share_packets; discard; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES;
    }

    // Which port of a group: `choice` modulo their number. P4Runtime writes all of them with one entry.
    @id(0x02000005)
    @entry_restriction("group != 0")
    table groups {
        key = {
            metadata.group: exact @name("group");
            metadata.choice: selector;
        }
        actions = { forward; }
        implementation = members;
        size = GROUPS;
    }

    action pop() {
        leave_by(headers.hops[0].port < PORTS ? (port_t)headers.hops[0].port : NOWHERE);
        metadata.may_return = 1;
        headers.hops.pop_front(1);
    }

    action end_source_route() {
        headers.ethernet.ether_type =
            headers.vlan.isValid() ? headers.ethernet.ether_type : headers.source_route.ether_type;
        headers.vlan.ether_type = headers.source_route.ether_type;
        headers.source_route.setInvalid();
    }

    apply {
        if (headers.ipv4.isValid() && !headers.source_route.isValid()) {
            ipv4_routes.apply();
        } else if (!headers.source_route.isValid()) {
            ipv6_routes.apply();
        } else if (metadata.is_untrusted == 1) {
            refuse_source_route();
        } else {
            if (headers.hops[0].last == 1) {
                end_source_route();
            }
            pop();
        }
        if (metadata.group != 0) {
            choose();
            groups.apply();
        }
    }
}
