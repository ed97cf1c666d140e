// SPDX-License-Identifier: Apache-2.0
// The IPv4 header's checksum, options included (RFC 791). UDP's and TCP's do not cover what a switch changes.

// Over a right header and its checksum the sum is 0, whether a checksum of 0 was written as 0 or as 0xFFFF.
control ChecksumVerification(inout headers_t headers, inout metadata_t metadata) {
    apply {
        verify_checksum(
            headers.ipv4.isValid(),
            {
                headers.ipv4.version_and_words, headers.ipv4.dscp, headers.ipv4.ecn,
                headers.ipv4.total_bytes, headers.ipv4.identification, headers.ipv4.flags,
                headers.ipv4.fragment_offset, headers.ipv4.ttl, headers.ipv4.protocol, headers.ipv4.checksum,
                headers.ipv4.source_network, headers.ipv4.source_host, headers.ipv4.destination, headers.ipv4_options.options
            },
            metadata.zero,
            HashAlgorithm.csum16);
    }
}

// Whoever changes a word of the header changes the checksum with it (RFC 1624, equation 3). `shift`: where the field
// ends in its word.
#define SET_TRAFFIC_CLASS_BITS(field, value, shift) \
    bit<32> sum = 0x1FFFE - (bit<32>)headers.ipv4.checksum \
        + ((bit<32>)value << shift) - ((bit<32>)headers.ipv4.field << shift); \
    sum = (sum & 0xFFFF) + (sum >> 16); \
    sum = (sum & 0xFFFF) + (sum >> 16); \
    headers.ipv4.checksum = ~sum[15:0]; \
    headers.ipv4.field = value; \
    headers.ipv6.field = value

control ChecksumUpdate(inout headers_t headers, inout metadata_t metadata) {
    apply {}
}
