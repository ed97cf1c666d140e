// Headers that the switch reads or writes, and what it remembers of a packet from ingress to egress.

const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_IPV6 = 0x86DD;
const bit<8> PROTOCOL_TCP = 6;
const bit<8> PROTOCOL_UDP = 17;

typedef bit<48> mac_address_t;
typedef bit<9> port_t;
typedef bit<3> queue_t;  // a BMv2 priority: 7 is served first, 0 last
typedef bit<12> place_t;  // port ++ queue: the index of every register and counter below

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

header ipv4_t {
    bit<4> version;
    bit<4> header_words;
    bit<6> dscp;
    bit<2> ecn;
    bit<16> total_bytes;
    bit<16> identification;
    bit<3> flags;
    bit<13> fragment_offset;
    bit<8> ttl;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> source;
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

// The first four bytes of UDP and TCP: all that choosing among equal paths needs. The agent's own header
// behind UDP is not read: everything that the switch acts on is in the IP header.
header ports_t {
    bit<16> source;
    bit<16> destination;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t vlan;
    source_route_t source_route;
    hop_t[SOURCE_ROUTE_MAXIMUM_HOPS] hops;
    ipv4_t ipv4;
    ipv4_options_t ipv4_options;
    ipv6_t ipv6;
    ports_t ports;
}

struct metadata_t {
    bit<8> refusal;
    bit<8> map;
    port_t port;
    mac_address_t neighbour;
    bit<6> dscp;
    bit<2> ecn;
    queue_t queue;
    place_t place;
    bit<32> ticket;  // bytes ever admitted to this queue, this packet included
}
