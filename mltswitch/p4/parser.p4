// From bytes to headers, and back. What cannot be read in full ends with a parser error, and is refused.

error {
    WrongVersion,
    WrongLength
}

parser PacketParser(
        packet_in packet,
        out headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(headers.ethernet);
        transition select(headers.ethernet.ether_type) {
            ETHERTYPE_VLAN: vlan;
            ETHERTYPE_SOURCE_ROUTE: source_route;
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state vlan {
        packet.extract(headers.vlan);
        transition select(headers.vlan.ether_type) {
            ETHERTYPE_SOURCE_ROUTE: source_route;
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state source_route {
        packet.extract(headers.source_route);
        verify(headers.source_route.version == SOURCE_ROUTE_VERSION, error.WrongVersion);
        transition hop;
    }

    // One hop more than the stack holds is error.StackOutOfBounds: too deep, or a loop.
    state hop {
        packet.extract(headers.hops.next);
        transition select(headers.hops.last.last) {
            0: hop;
            default: below_source_route;
        }
    }

    state below_source_route {
        transition select(headers.source_route.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state ipv4 {
        packet.extract(headers.ipv4);
        verify(headers.ipv4.version == 4, error.WrongVersion);
        verify(headers.ipv4.header_words >= 5, error.WrongLength);
        metadata.dscp = headers.ipv4.dscp;
        metadata.ecn = headers.ipv4.ecn;
        transition select(headers.ipv4.header_words) {
            5: below_ipv4;
            default: ipv4_options;
        }
    }

    state ipv4_options {
        packet.extract(headers.ipv4_options, ((bit<32>)headers.ipv4.header_words - 5) << 5);
        transition below_ipv4;
    }

    // Only a first fragment has ports.
    state below_ipv4 {
        transition select(headers.ipv4.fragment_offset, headers.ipv4.protocol) {
            (0, PROTOCOL_TCP): ports;
            (0, PROTOCOL_UDP): ports;
            default: accept;
        }
    }

    state ipv6 {
        packet.extract(headers.ipv6);
        verify(headers.ipv6.version == 6, error.WrongVersion);
        metadata.dscp = headers.ipv6.dscp;
        metadata.ecn = headers.ipv6.ecn;
        transition select(headers.ipv6.next_header) {
            PROTOCOL_TCP: ports;
            PROTOCOL_UDP: ports;
            default: accept;
        }
    }

    state ports {
        packet.extract(headers.ports);
        transition accept;
    }
}

control PacketDeparser(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.ethernet);
        packet.emit(headers.vlan);
        packet.emit(headers.source_route);
        packet.emit(headers.hops);
        packet.emit(headers.ipv4);
        packet.emit(headers.ipv4_options);
        packet.emit(headers.ipv6);
        packet.emit(headers.ports);
    }
}
