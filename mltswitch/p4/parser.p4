// SPDX-License-Identifier: Apache-2.0
// From bytes to headers, and back. What cannot be forwarded, whatever the tables say, ends with a parser error.

error {
    WrongVersion,
    WrongLength,
    NotIp,
    Martian,
    FromController
}

parser PacketParser(
        packet_in packet,
        out headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    state start {
        transition select(standard_metadata.ingress_port) {
            CPU_PORT: from_controller;
            default: ethernet;
        }
    }

    state from_controller {
        packet.extract(headers.packet_out);
        verify(false, error.FromController);
        transition accept;
    }

    state ethernet {
        packet.extract(headers.ethernet);
        transition select(headers.ethernet.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            ETHERTYPE_SOURCE_ROUTE: source_route;
            ETHERTYPE_VLAN: vlan;
            default: not_ip;
        }
    }

    state vlan {
        packet.extract(headers.vlan);
        metadata.more_link_bytes = VLAN_BYTES;
        transition select(headers.vlan.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            ETHERTYPE_SOURCE_ROUTE: source_route;
            default: not_ip;
        }
    }

    state source_route {
        packet.extract(headers.source_route);
        verify(headers.source_route.version == SOURCE_ROUTE_VERSION, error.WrongVersion);
        metadata.more_link_bytes = metadata.more_link_bytes + SOURCE_ROUTE_BYTES;
        transition hop;
    }

    // One hop more than the stack holds is error.StackOutOfBounds: too deep, or a loop.
    state hop {
        packet.extract(headers.hops.next);
        metadata.more_link_bytes = metadata.more_link_bytes + HOP_BYTES;
        transition select(headers.hops.last.last) {
            0: hop;
            default: below_source_route;
        }
    }

    state below_source_route {
        transition select(headers.source_route.ether_type) {
            ETHERTYPE_IPV4: ipv4;
            ETHERTYPE_IPV6: ipv6;
            default: not_ip;
        }
    }

    state not_ip {
        verify(false, error.NotIp);
        transition accept;
    }

    // Only a first fragment has ports, and only where the datagram has room for them; what stands behind it pads
    // the frame. Martians: "this" network, loopback, groups and reserved addresses.
    state ipv4 {
        packet.extract(headers.ipv4);
        metadata.dscp = headers.ipv4.dscp;
        verify(
            standard_metadata.packet_length
                >= (bit<32>)(ETHERNET_BYTES + metadata.more_link_bytes) + (bit<32>)headers.ipv4.total_bytes,
            error.WrongLength);
        transition select(
                headers.ipv4.version_and_words, headers.ipv4.source_network, headers.ipv4.ttl,
                headers.ipv4.total_bytes, headers.ipv4.fragment_offset, headers.ipv4.protocol) {
            (0x44 &&& 0xFF, _, _, _, _, _): wrong_version;
            (0x40 &&& 0xFC, _, _, _, _, _): wrong_version;
            (0x40 &&& 0xF0, 0, _, _, _, _): martian;
            (0x40 &&& 0xF0, 127, _, _, _, _): martian;
            (0x40 &&& 0xF0, 0xE0 &&& 0xE0, _, _, _, _): martian;
            (0x45, _, _, 0 &&& 0xFFF0, _, _): wrong_length;
            (0x45, _, _, 16 &&& 0xFFFC, _, _): wrong_length;
            (0x45, _, 0 &&& 0xFE, _, _, _): expired;
            (0x45, _, _, 20 &&& 0xFFFC, _, _): accept;
            (0x45, _, _, _, 0, PROTOCOL_UDP): ports;
            (0x45, _, _, _, 0, PROTOCOL_TCP): ports;
            (0x45, _, _, _, _, _): accept;
            (0x40 &&& 0xF0, _, _, _, _, _): ipv4_options;
            default: wrong_version;
        }
    }

    state ipv4_options {
        packet.extract(headers.ipv4_options, ((bit<32>)headers.ipv4.version_and_words[3:0] - 5) << 5);
        verify(
            headers.ipv4.total_bytes >= (bit<16>)headers.ipv4.version_and_words[3:0] << 2, error.WrongLength);
        transition select(headers.ipv4.ttl) {
            0 &&& 0xFE: expired;
            default: accept;
        }
    }

    // Refused where it is decided upon: whoever sent it to us is told, and nobody else.
    state expired {
        metadata.is_expired = 1;
        transition accept;
    }

    state martian {
        verify(false, error.Martian);
        transition accept;
    }

    state wrong_version {
        verify(false, error.WrongVersion);
        transition accept;
    }

    state wrong_length {
        verify(false, error.WrongLength);
        transition accept;
    }

    state ipv6 {
        packet.extract(headers.ipv6);
        metadata.dscp = headers.ipv6.dscp;
        verify(headers.ipv6.version == 6, error.WrongVersion);
        verify(
            standard_metadata.packet_length
                >= (bit<32>)(ETHERNET_BYTES + metadata.more_link_bytes + IPV6_BYTES)
                    + (bit<32>)headers.ipv6.payload_bytes,
            error.WrongLength);
        verify(headers.ipv6.source[127:120] != 0xFF && headers.ipv6.source[127:1] != 0, error.Martian);
        transition select(headers.ipv6.hop_limit, headers.ipv6.payload_bytes, headers.ipv6.next_header) {
            (0 &&& 0xFE, _, _): expired;
            (_, 0 &&& 0xFFFC, _): accept;
            (_, _, PROTOCOL_UDP): ports;
            (_, _, PROTOCOL_TCP): ports;
            default: accept;
        }
    }

    // The agent's own header behind UDP is not read: everything that the switch acts on is in the IP header.
    state ports {
        metadata.ports = packet.lookahead<bit<32>>();
        transition accept;
    }
}

control PacketDeparser(packet_out packet, in headers_t headers) {
    apply {
        packet.emit(headers.packet_in);
        packet.emit(headers.ethernet);
        packet.emit(headers.vlan);
        packet.emit(headers.source_route);
        packet.emit(headers.hops);
        packet.emit(headers.ipv4);
        packet.emit(headers.ipv4_options);
        packet.emit(headers.ipv6);
    }
}
