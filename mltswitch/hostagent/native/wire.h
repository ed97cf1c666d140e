/* Where the fields of the agent header and of an acknowledgement lie, and how they are read and written: in network
 * order. A test holds these numbers against mltswitch/wire/headers.py, where they are defined.
 */
#ifndef MLT_WIRE_H
#define MLT_WIRE_H

#include <stdint.h>
#include <string.h>

enum {
    FLAGS = 2,
    TOKEN = 4,
    TOKEN_BYTES = 8,
    COMMON_BYTES = 20, /* which all packets of a transfer begin with, flags apart */
    PATH = 22,
    SEQUENCE = 24,
    ELEMENT_OFFSET = 28,
    SENT = 32,
    HEADER_BYTES = 40,
    ECHOED = 40,
    HELD = 48,
    RECEIVED = 52,
    MARKED = 56,
    ACKNOWLEDGEMENT_BYTES = 60,
    ACKNOWLEDGEMENT = 2, /* a kind */
    IMPORTANT = 1,       /* flags */
    LAST = 2,
    ECN_MASK = 3, /* RFC 3168; CE is both bits */
};

static inline uint16_t word16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static inline uint32_t word32(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap32(word);
}

static inline uint64_t word64(const uint8_t *at)
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
