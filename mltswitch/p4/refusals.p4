// SPDX-License-Identifier: Apache-2.0
// Why a packet is not forwarded, where no queue is to blame: the index of the counter `refused`.

const bit<7> REFUSED_NO_QUEUE = 0;  // the port leads nowhere: no queue of it is configured
const bit<7> REFUSED_MALFORMED = 1;  // truncated, a wrong version or length, a source route too deep
const bit<7> REFUSED_CHECKSUM = 2;  // of the IPv4 header
const bit<7> REFUSED_NOT_IP = 3;
const bit<7> REFUSED_NO_ROUTE = 4;
const bit<7> REFUSED_EXPIRED = 5;  // TTL or hop limit
const bit<7> REFUSED_UNREACHABLE = 6;  // nobody has the address, says the route
const bit<7> REFUSED_NOT_OURS = 7;  // sent to another MAC address than that of the port, or to a group of them
const bit<7> REFUSED_UNTRUSTED = 8;  // a source route from a port that is not trusted
const bit<7> REFUSED_MARTIAN = 9;  // a source address that no host has (RFC 1812, section 5.3.7)
const bit<7> REFUSED_TOO_BIG = 10;  // more than the MTU of the port that it would leave by
const bit<7> REFUSED_RETURNED = 11;  // it would leave by the port that it came by, and no route says so
const bit<7> REFUSED_NO_NEIGHBOUR = 12;  // nobody said which MAC address is behind the port

counter(16, CounterType.packets) refused;

#define REFUSE(reason) refused.count((bit<32>)reason); mark_to_drop(standard_metadata); exit

// The controller may answer whoever sent it (ICMP).
#define TELL(why) refused.count((bit<32>)why); standard_metadata.egress_spec = CPU_PORT; \
    headers.packet_in.setValid(); headers.packet_in.reason = why; \
    headers.packet_in.ingress_port = standard_metadata.ingress_port; exit

// What ended with a parser error, or has a wrong checksum; and what a controller wants to be sent as it is.
control Exceptions(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    action send() { standard_metadata.egress_spec = headers.packet_out.egress_port; exit; }
    action not_ip() { REFUSE(REFUSED_NOT_IP); }
    action martian() { REFUSE(REFUSED_MARTIAN); }
    action wrong_checksum() { REFUSE(REFUSED_CHECKSUM); }
    action malformed() { REFUSE(REFUSED_MALFORMED); }

    apply {
        if (standard_metadata.parser_error == error.FromController) {
            send();
        } else if (standard_metadata.parser_error == error.NotIp) {
            not_ip();
        } else if (standard_metadata.parser_error == error.Martian) {
            martian();
        } else if (standard_metadata.parser_error == error.NoError) {
            wrong_checksum();
        } else {
            malformed();
        }
    }
}
