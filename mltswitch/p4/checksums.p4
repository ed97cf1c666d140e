// The IPv4 header's checksum, options included (RFC 791). UDP's and TCP's do not cover what a switch changes.

#define IPV4_FIELDS(ipv4, ipv4_options) { \
    ipv4.version, ipv4.header_words, ipv4.dscp, ipv4.ecn, ipv4.total_bytes, ipv4.identification, ipv4.flags, \
    ipv4.fragment_offset, ipv4.ttl, ipv4.protocol, ipv4.source, ipv4.destination, ipv4_options.options }

control ChecksumVerification(inout headers_t headers, inout metadata_t metadata) {
    apply {
        verify_checksum(
            headers.ipv4.isValid(),
            IPV4_FIELDS(headers.ipv4, headers.ipv4_options),
            headers.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}

control ChecksumUpdate(inout headers_t headers, inout metadata_t metadata) {
    apply {
        update_checksum(
            headers.ipv4.isValid(),
            IPV4_FIELDS(headers.ipv4, headers.ipv4_options),
            headers.ipv4.checksum,
            HashAlgorithm.csum16);
    }
}
