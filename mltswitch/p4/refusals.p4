// Why a packet is not forwarded, where no queue is to blame: the index of the counter `refused`.

const bit<8> ACCEPTED = 0;
const bit<8> REFUSED_MALFORMED = 1;  // truncated, a wrong version or length, a source route too deep
const bit<8> REFUSED_CHECKSUM = 2;  // of the IPv4 header
const bit<8> REFUSED_NOT_IP = 3;
const bit<8> REFUSED_NO_ROUTE = 4;
const bit<8> REFUSED_EXPIRED = 5;  // TTL or hop limit
const bit<8> REFUSED_NO_QUEUE = 6;  // the port leads nowhere: no queue of it is configured
const bit<8> REFUSED_GROUP_ADDRESS = 7;  // broadcast and multicast frames are not routed (RFC 1812, section 5.3.4)
const bit<8> REFUSED_UNTRUSTED = 8;  // a source route from a port that is not trusted
