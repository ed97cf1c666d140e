// Which port a packet leaves by, and whose address it carries there: the source route says it, else the
// longest prefix, where several next hops share it one by one or flow by flow.

control Forwarding(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    bit<8> group = 0;
    bit<16> members = 0;
    bit<16> member = 0;
    bit<1> packet_by_packet = 0;
    register<bit<16>>(GROUPS) last_member;

    action forward(port_t port, mac_address_t neighbour) {
        metadata.port = port;
        metadata.neighbour = neighbour;
    }

    // `members` next hops share the packets; they are the entries (group, 0 … members - 1) of `members_of`.
    action share(bit<8> group_number, bit<16> members_count) {
        group = group_number;
        members = members_count;
    }

    action no_route() {
        metadata.refusal = REFUSED_NO_ROUTE;
    }

    action set_neighbour(mac_address_t neighbour) {
        metadata.neighbour = neighbour;
    }

    action no_neighbour() {
        metadata.refusal = REFUSED_NO_QUEUE;
    }

    action spray_packets() {
        packet_by_packet = 1;
    }

    // Next hops by port, for packets that name the port themselves.
    table neighbours {
        key = { metadata.port: exact @name("port"); }
        actions = { set_neighbour; @defaultonly no_neighbour; }
        const default_action = no_neighbour();
        size = PORTS;
    }

    table ipv4_routes {
        key = { headers.ipv4.destination: lpm @name("destination"); }
        actions = { forward; share; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES;
    }

    table ipv6_routes {
        key = { headers.ipv6.destination: lpm @name("destination"); }
        actions = { forward; share; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES;
    }

    table members_of {
        key = {
            group: exact @name("group");
            member: exact @name("member");
        }
        actions = { forward; @defaultonly no_route; }
        const default_action = no_route();
        size = ROUTES;
    }

    // One entry, whose key says nothing, turns it on: per-packet ECMP, the paper's alternative to source routes.
    table spraying {
        key = { metadata.refusal: exact @name("always_0"); }
        actions = { spray_packets; @defaultonly NoAction; }
        const default_action = NoAction();
        size = 1;
    }

    action next_member() {
        last_member.read(member, (bit<32>)group);
        member = member + 1;
        member = member < members ? member : 0;
        last_member.write((bit<32>)group, member);
    }

    action member_of_flow() {
        bit<128> source = headers.ipv4.isValid() ? (bit<128>)headers.ipv4.source : headers.ipv6.source;
        bit<128> destination =
            headers.ipv4.isValid() ? (bit<128>)headers.ipv4.destination : headers.ipv6.destination;
        bit<8> protocol = headers.ipv4.isValid() ? headers.ipv4.protocol : headers.ipv6.next_header;
        bit<16> source_port = headers.ports.isValid() ? headers.ports.source : 0;
        bit<16> destination_port = headers.ports.isValid() ? headers.ports.destination : 0;
        hash(member, HashAlgorithm.crc32, (bit<16>)0,
            { source, destination, protocol, source_port, destination_port }, (bit<32>)members);
    }

    action pop() {
        metadata.port = (port_t)headers.hops[0].port;
        metadata.refusal = headers.hops[0].port < PORTS ? metadata.refusal : REFUSED_NO_QUEUE;
    }

    action end_source_route() {
        headers.ethernet.ether_type =
            headers.vlan.isValid() ? headers.ethernet.ether_type : headers.source_route.ether_type;
        headers.vlan.ether_type = headers.source_route.ether_type;
        headers.source_route.setInvalid();
    }

    apply {
        if (headers.source_route.isValid() && metadata.map == 0) {
            metadata.refusal = REFUSED_UNTRUSTED;
        } else if (headers.source_route.isValid()) {
            pop();
            if (headers.hops[0].last == 1) {
                end_source_route();
            }
            headers.hops.pop_front(1);
            neighbours.apply();
        } else {
            if (headers.ipv4.isValid()) {
                ipv4_routes.apply();
            } else {
                ipv6_routes.apply();
            }
            if (members > 0) {
                spraying.apply();
                if (packet_by_packet == 1) {
                    next_member();
                } else {
                    member_of_flow();
                }
                members_of.apply();
            }
        }
    }
}

// A packet that may live no longer is refused; no ICMP is sent.
control Ageing(inout headers_t headers, inout metadata_t metadata) {
    apply {
        if (headers.ipv4.isValid()) {
            if (headers.ipv4.ttl <= 1) {
                metadata.refusal = REFUSED_EXPIRED;
            }
            headers.ipv4.ttl = headers.ipv4.ttl - 1;
        } else {
            if (headers.ipv6.hop_limit <= 1) {
                metadata.refusal = REFUSED_EXPIRED;
            }
            headers.ipv6.hop_limit = headers.ipv6.hop_limit - 1;
        }
    }
}
