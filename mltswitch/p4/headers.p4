// SPDX-License-Identifier: Apache-2.0
// Headers that the switch reads or writes, and what it remembers of a packet from its arrival to its departure.

const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;
const bit<16> ETHERNET_BYTES = 14;
const bit<16> VLAN_BYTES = 4;
const bit<16> SOURCE_ROUTE_BYTES = 4;
const bit<16> HOP_BYTES = 2;
const bit<16> IPV6_BYTES = 40;

typedef bit<48> mac_address_t;
typedef bit<9> port_t;
typedef bit<3> queue_t;  // a BMv2 priority: 7 is served first, 0 last

// Between the switch and its controller (P4Runtime, section 16.1.1): what could not be forwarded, and what to send.
@controller_header("packet_in")
header packet_in_t {
    port_t ingress_port;
    bit<7> reason;  // of refusals.p4
}

@controller_header("packet_out")
header packet_out_t {
    port_t egress_port;
    bit<7> reserved;
}

header ethernet_t {
    mac_address_t destination;
    mac_address_t source;
    bit<16> ether_type;
}

header vlan_t {
    bit<3> priority;
    bit<1> drop_eligible;
    bit<12> identifier;
    bit<16> ether_type;
}

// Split where the parser looks at a part: it selects faster than it calculates.
header ipv4_t {
    bit<8> version_and_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_bytes;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<8> source_network;
    bit<24> source_host;
    bit<32> destination;
}

header ipv4_options_t {
    varbit<320> options;
}

header ipv6_t {
    bit<4> version;
    bit<6> dscp;
    bit<2> ecn;
    bit<20> flow_label;
    bit<16> payload_bytes;
    bit<8> next_header;
    bit<8> hop_limit;
    bit<128> source;
    bit<128> destination;
}

struct headers_t {
    packet_in_t packet_in;
    packet_out_t packet_out;
    ethernet_t ethernet;
    vlan_t vlan;
    source_route_t source_route;
    hop_t[SOURCE_ROUTE_MAXIMUM_HOPS] hops;
    ipv4_t ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t ipv6;
}

struct metadata_t {
    bit<16> zero;  // what the sum over a right IPv4 header is
    bit<16> more_link_bytes;  // of the headers between Ethernet and IP
    bit<32> ports;  // source and destination port of TCP and UDP, all that choosing among equal paths needs
    bit<6> dscp;
    queue_t queue;
    bit<1> is_untrusted;
    bit<1> is_expired;
    bit<1> may_return;  // by the port that it came by
    port_t port;  // that it leaves by
    bit<32> place;  // port ++ queue: the index of every register and meter of a queue
    bit<8> group;  // of ports that share a prefix
    bit<1> in_turn;  // packet by packet, and not flow by flow
    bit<32> choice;  // which of the group, modulo their number
    bit<2> decision;
    bit<32> cell;  // place ++ decision: the index of its counter
    bit<81> departed;  // of its queue, see admission.p4
    bit<32> ticket;  // bytes ever admitted to its queue, its own included
}
