// Why a packet is not forwarded, where no queue is to blame: the index of the counter `refused`.

const bit<8> ACCEPTED = 0;
const bit<8> REFUSED_MALFORMED = 1;  // truncated, a wrong version or length, a source route too deep
const bit<8> REFUSED_CHECKSUM = 2;  // of the IPv4 header
const bit<8> REFUSED_NOT_IP = 3;
const bit<8> REFUSED_NO_ROUTE = 4;
const bit<8> REFUSED_EXPIRED = 5;  // TTL or hop limit
const bit<8> REFUSED_NO_QUEUE = 6;  // the port leads nowhere: no queue of it is configured
