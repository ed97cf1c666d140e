/* Passes over every packet, each a loop where numpy would make a dozen passes.
 *
 * No function here keeps anything, allocates, or reads the clock. What a peer sent is compared before it is used:
 * a sequence number that the tensor does not have, or a body of another length, writes nowhere.
 */
#include <stdint.h>
#include <string.h>

/* The agent header, in network order: a test holds these against mltswitch/wire/headers.py, where it is defined.
 * Flags, and what follows the round, differ by packet. */
enum {
    FLAGS = 2,
    PATH = 22,
    SEQUENCE = 24,
    ELEMENT_OFFSET = 28,
    SENT = 32,
    HEADER_BYTES = 40,
    IMPORTANT = 1,
    ECN_MASK = 3, /* RFC 3168; CE is both bits */
};

struct grid {
    const uint8_t *first;
    const uint8_t *tos;        /* of each message */
    const int64_t *arrived_ns; /* of each message */
    int64_t messages, message_stride_bytes, datagrams_per_message, datagram_bytes;
};

struct feedback {
    int64_t *received, *marked, *pending; /* of each path */
    uint64_t *newest_sent_ns;
    int64_t *newest_arrived_ns;
    int64_t paths;
    int64_t unknown_paths; /* counted here */
};

struct transfer {
    uint8_t *elements;
    uint8_t *received, *important; /* of each packet */
    int64_t *by_tos, *by_path;
    int64_t paths, packets, elements_per_packet, full_bytes, last_bytes;
    int64_t different, different_important, duplicates; /* counted here */
    int64_t least_took_ns, most_took_ns;                /* of this call */
};

/* What was built before this file changed must not be used: raise the first number here and in `__init__.py` with
 * every change that a caller could notice. The others tell on their own. */
const int64_t mlt_version[4] = {1, sizeof(struct grid), sizeof(struct feedback), sizeof(struct transfer)};

static uint16_t word16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static uint32_t word32(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap32(word);
}

static uint64_t word64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return __builtin_bswap64(word);
}

/* Whether version, kind, element type, token, tensor and round are those of the transfer. */
static int is_of(const uint8_t *datagram, const uint8_t *common)
{
    return !memcmp(datagram, common, FLAGS) && !memcmp(datagram + FLAGS + 1, common + FLAGS + 1, 17);
}

static void count(struct feedback *feedback, uint16_t path, uint64_t sent_ns, int64_t arrived_ns, int is_marked)
{
    if (path >= feedback->paths) {
        feedback->unknown_paths++;
        return;
    }
    feedback->received[path]++;
    feedback->pending[path]++;
    feedback->marked[path] += is_marked;
    if (sent_ns > feedback->newest_sent_ns[path]) {
        feedback->newest_sent_ns[path] = sent_ns;
        feedback->newest_arrived_ns[path] = arrived_ns;
    }
}

static void take_in(struct transfer *transfer, const uint8_t *datagram, int64_t body_bytes, uint8_t tos)
{
    int64_t sequence = word32(datagram + SEQUENCE);
    uint16_t path = word16(datagram + PATH);
    if (sequence >= transfer->packets || word32(datagram + ELEMENT_OFFSET) != sequence * transfer->elements_per_packet
        || body_bytes != (sequence == transfer->packets - 1 ? transfer->last_bytes : transfer->full_bytes))
        return;
    memcpy(transfer->elements + sequence * transfer->full_bytes, datagram + HEADER_BYTES, (size_t)body_bytes);
    transfer->by_tos[tos]++;
    if (path < transfer->paths)
        transfer->by_path[path]++;
    if (transfer->received[sequence]) {
        transfer->duplicates++;
        return;
    }
    transfer->received[sequence] = 1;
    transfer->different++;
    if (datagram[FLAGS] & IMPORTANT) {
        transfer->important[sequence] = 1;
        transfer->different_important++;
    }
}

/* Datagrams of HEADER_BYTES or more; returns how many were left alone, each of which has a 1 in `is_left`. */
int64_t mlt_accept(const struct grid *grid, const uint8_t *common, struct feedback *feedback,
                   struct transfer *transfer, uint8_t *is_left)
{
    int64_t left = 0;
    for (int64_t message = 0; message < grid->messages; message++) {
        const uint8_t *datagram = grid->first + message * grid->message_stride_bytes;
        uint8_t tos = grid->tos[message];
        int64_t arrived_ns = grid->arrived_ns[message];
        for (int64_t place = 0; place < grid->datagrams_per_message; place++, datagram += grid->datagram_bytes) {
            int is_other = !is_of(datagram, common);
            *is_left++ = (uint8_t)is_other;
            left += is_other;
            if (is_other)
                continue;
            uint64_t sent_ns = word64(datagram + SENT);
            int64_t took_ns = (int64_t)((uint64_t)arrived_ns - sent_ns);
            if (took_ns < transfer->least_took_ns)
                transfer->least_took_ns = took_ns;
            if (took_ns > transfer->most_took_ns)
                transfer->most_took_ns = took_ns;
            count(feedback, word16(datagram + PATH), sent_ns, arrived_ns, (tos & ECN_MASK) == ECN_MASK);
            take_in(transfer, datagram, grid->datagram_bytes - HEADER_BYTES, tos);
        }
    }
    return left;
}

/* struct cmsghdr as 64-bit words: length, level and type, value. What was read is cleared for the next call. */
void mlt_controls(int64_t *words, int64_t messages, int64_t words_per_message, int64_t tos_key, int64_t segment_key,
                  int64_t time_key, uint8_t *tos, int64_t *segments, int64_t *times_ns)
{
    for (int64_t message = 0; message < messages; message++, words += words_per_message) {
        tos[message] = 0;
        segments[message] = times_ns[message] = 0;
        for (int64_t at = 0; at + 4 <= words_per_message && words[at] > 0; at += (words[at] + 7) / 8) {
            if (words[at + 1] == time_key)
                times_ns[message] = words[at + 2] * 1000000000 + words[at + 3];
            else if (words[at + 1] == segment_key)
                segments[message] = words[at + 2] & 0xFFFF;
            else if (words[at + 1] == tos_key)
                tos[message] = (uint8_t)words[at + 2];
        }
        memset(words, 0, (size_t)words_per_message * sizeof *words);
    }
}

/* Sums of |element| of rows that lie one behind the other, aligned or not. Sixteen sums a row, because compilers may
 * not change the order of additions. */
enum { LANES = 16 };

static inline float of_float32(const uint8_t *at)
{
    uint32_t bits;
    float value;
    memcpy(&bits, at, sizeof bits);
    bits &= 0x7FFFFFFF;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float of_bfloat16(const uint8_t *at)
{
    uint16_t bits;
    float value;
    memcpy(&bits, at, sizeof bits);
    uint32_t wide = (uint32_t)(bits & 0x7FFF) << 16;
    memcpy(&value, &wide, sizeof value);
    return value;
}

#define SUM_ROWS(name, size_bytes, magnitude)                                                     \
    void name(const uint8_t *rows, int64_t count, int64_t elements, float *sums)                  \
    {                                                                                             \
        for (int64_t row = 0; row < count; row++, rows += elements * size_bytes) {                \
            float lanes[LANES] = {0};                                                             \
            int64_t at = 0;                                                                       \
            for (; at + LANES <= elements; at += LANES)                                           \
                for (int lane = 0; lane < LANES; lane++)                                          \
                    lanes[lane] += magnitude(rows + (at + lane) * size_bytes);                    \
            for (int lane = 0; at < elements; at++, lane++)                                       \
                lanes[lane] += magnitude(rows + at * size_bytes);                                 \
            for (int half = LANES / 2; half; half /= 2)                                           \
                for (int lane = 0; lane < half; lane++)                                           \
                    lanes[lane] += lanes[lane + half];                                            \
            sums[row] = lanes[0];                                                                 \
        }                                                                                         \
    }

SUM_ROWS(mlt_sum_float32, 4, of_float32)
SUM_ROWS(mlt_sum_bfloat16, 2, of_bfloat16)
