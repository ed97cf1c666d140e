// SPDX-License-Identifier: Apache-2.0
// Made from mltswitch/wire/headers.py: change that, then run `make golden`.
#ifndef MLTSWITCH_WIRE_P4
#define MLTSWITCH_WIRE_P4

// A macro, so that the preprocessor can use it, too.
#define SOURCE_ROUTE_MAXIMUM_HOPS 8

const bit<16> ETHERTYPE_SOURCE_ROUTE = 0x88B5;
const bit<8> SOURCE_ROUTE_VERSION = 1;

// Source route: before the stack of hops.
header source_route_t {
    bit<8> version;  // 1; switches drop what has another
    bit<8> reserved;  // sent as 0, not looked at
    bit<16> ether_type;  // EtherType of what follows the last hop; the switch that pops that hop restores it
}

// Hop: 1 to 8 of them, in the order of the switches.
header hop_t {
    bit<1> last;  // 1 on the last hop of the stack, 0 on those before it
    bit<15> port;  // egress port of the switch that pops this hop
}

#endif
