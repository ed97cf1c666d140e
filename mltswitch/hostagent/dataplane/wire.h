/* Where the fields of our packets lie, and how they are read and written: in network order. A test holds these numbers
 * against mltswitch/wire/headers.py, where the header is defined; messages of the control stream are defined in
 * messages.c.
 */
#ifndef MLT_WIRE_H
#define MLT_WIRE_H

#include <stdint.h>
#include <string.h>

enum wire {
    VERSION_OFFSET = 0,
    KIND_OFFSET = 1,
    FLAGS_OFFSET = 2,
    ELEMENT_TYPE_OFFSET = 3,
    TOKEN_OFFSET = 4,
    TENSOR_OFFSET = 12,
    ROUND_OFFSET = 16,
    LAYER_OFFSET = 20,
    PATH_OFFSET = 22,
    SEQUENCE_OFFSET = 24,
    ELEMENT_OFFSET_OFFSET = 28,
    SENT_OFFSET = 32,
    HEADER_BYTES = 40,

    ECHOED_OFFSET = 40,
    HELD_OFFSET = 48,
    RECEIVED_OFFSET = 52,
    MARKED_OFFSET = 56,
    ACKNOWLEDGEMENT_BYTES = 60,

    /* What a selective acknowledgement has behind that: pieces of bitmaps, as many as it is long. */
    PIECE_TENSOR_OFFSET = 0,
    PIECE_ROUND_OFFSET = 4,
    PIECE_NUMBER_OFFSET = 8, /* its first packet is this times PIECE_PACKETS */
    PIECE_BITS_OFFSET = 12,
    PIECE_PACKETS = 128,
    PIECE_BYTES = 28,

    TAG_BYTES = 16,

    /* Of flows with credit (credit.c), in bytes of datagrams modulo 2^32: how much data and probes say that their sender has
     * sent, and acknowledgements and control datagrams that the peer may have sent. */
    SPENT_OFFSET = ELEMENT_OFFSET_OFFSET,
    GRANTED_OFFSET = TENSOR_OFFSET,

    WIRE_VERSION = 2,
    KIND_DATA = 1,
    KIND_ACKNOWLEDGEMENT = 2,
    KIND_PROBE = 3,
    KIND_CONTROL = 4,
    KIND_SELECTIVE = 5,

    FLAG_IMPORTANT = 1,
    FLAG_LAST = 2,
    FLAG_RETRANSMISSION = 4,
    FLAG_AUTHENTICATED = 8,

    /* In a control datagram `sequence` is the number of its frame (0: it has none), `element_offset` the number of the
     * frame that its sender expects next, and bit k of `layer` says that frame number expected + 1 + k is there. */
    FRAME_OFFSET = SEQUENCE_OFFSET,
    EXPECTED_OFFSET = ELEMENT_OFFSET_OFFSET,
    HELD_FRAMES_OFFSET = LAYER_OFFSET,

    /* Before the agent header, where we write it ourselves: RFC 791 and 768. */
    IPV4_BYTES = 20,
    IPV4_START = 0x45, /* version 4, no options */
    IPV4_TOS_OFFSET = 1,
    IPV4_LENGTH_OFFSET = 2,
    IPV4_CHECKSUM_OFFSET = 10,
    UDP_BYTES = 8,
    UDP_LENGTH_OFFSET = 4,
    UDP_CHECKSUM_OFFSET = 6,
    ETHERNET_BYTES = 14,

    ECN_MASK = 3, /* RFC 3168; CE is both bits */
};

static inline uint16_t read16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t read32(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap32(word);
}

static inline uint64_t read64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap64(word);
}

static inline void write16(uint8_t *at, uint16_t number)
{
    number = __builtin_bswap16(number);
    memcpy(at, &number, sizeof number);
}

static inline void write32(uint8_t *at, uint32_t number)
{
    number = __builtin_bswap32(number);
    memcpy(at, &number, sizeof number);
}

static inline void write64(uint8_t *at, uint64_t number)
{
    number = __builtin_bswap64(number);
    memcpy(at, &number, sizeof number);
}

#endif
