/* How large the elements of a packet are: mean |element|, and the median of these means in a sample of packets.
 *
 * MLT compares a packet's mean with the median element; the mean mostly exceeds that, so nearly all packets would be
 * important. The median of the means splits in the middle, as intended.
 */
#include <math.h>
#include <stdlib.h>

#include "internal.h"

enum {
    LANES = 16, /* sums side by side, because compilers may not change the order of additions */
    SAMPLE_OF = 20,
    LEAST_SAMPLE = 64,
    MOST_SAMPLE = 1024,
};

uint8_t element_bytes(uint8_t element_type)
{
    static const uint8_t bytes[] = {[MLT_FLOAT32] = 4, [MLT_FLOAT16] = 2, [MLT_BFLOAT16] = 2, [MLT_FLOAT64] = 8,
                                    [MLT_INT8] = 1,    [MLT_INT16] = 2,   [MLT_INT32] = 4,    [MLT_INT64] = 8,
                                    [MLT_BYTES] = 1};
    return element_type < sizeof bytes ? bytes[element_type] : 0;
}

static inline float magnitude_float32(const uint8_t *at)
{
    uint32_t bits;
    float value;
    memcpy(&bits, at, sizeof bits);
    bits &= 0x7FFFFFFF;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float magnitude_bfloat16(const uint8_t *at)
{
    uint16_t bits;
    float value;
    memcpy(&bits, at, sizeof bits);
    uint32_t wide = (uint32_t)(bits & 0x7FFF) << 16;
    memcpy(&value, &wide, sizeof value);
    return value;
}

/* Exponents of float16 begin 112 lower; the product is right for subnormal numbers, too, and large for infinity. */
static inline float magnitude_float16(const uint8_t *at)
{
    uint16_t bits;
    float value;
    memcpy(&bits, at, sizeof bits);
    uint32_t wide = (uint32_t)(bits & 0x7FFF) << 13;
    memcpy(&value, &wide, sizeof value);
    return value * 0x1p112F;
}

static inline float magnitude_float64(const uint8_t *at)
{
    double value;
    memcpy(&value, at, sizeof value);
    return (float)fabs(value);
}

static inline float magnitude_int8(const uint8_t *at)
{
    return fabsf((float)(int8_t)*at);
}

static inline float magnitude_int16(const uint8_t *at)
{
    int16_t value;
    memcpy(&value, at, sizeof value);
    return fabsf((float)value);
}

static inline float magnitude_int32(const uint8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return fabsf((float)value);
}

static inline float magnitude_int64(const uint8_t *at)
{
    int64_t value;
    memcpy(&value, at, sizeof value);
    return fabsf((float)value);
}

static inline float magnitude_bytes(const uint8_t *at)
{
    return (float)*at;
}

/* Inlined with each magnitude, so that the loop over lanes becomes vector instructions. */
static inline __attribute__((always_inline)) float sum(const uint8_t *row, uint32_t elements, uint32_t size,
                                                       float (*magnitude)(const uint8_t *))
{
    float lanes[LANES] = {0};
    uint32_t at = 0;
    for (; at + LANES <= elements; at += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++)
            lanes[lane] += magnitude(row + (size_t)(at + lane) * size);
    for (uint32_t lane = 0; at < elements; at++, lane++)
        lanes[lane] += magnitude(row + (size_t)at * size);
    for (uint32_t half = LANES / 2; half; half /= 2)
        for (uint32_t lane = 0; lane < half; lane++)
            lanes[lane] += lanes[lane + half];
    return lanes[0];
}

/* Wider vectors where the processor has them; the lanes, and so the sums, are the same. */
#if defined __x86_64__ && defined __GLIBC__ && !defined __SANITIZE_ADDRESS__
__attribute__((target_clones("avx2", "default")))
#endif
float importance_mean(const struct layout *layout, const uint8_t *memory, uint32_t packet)
{
    const uint8_t *row = memory + (size_t)packet * layout->full_bytes;
    uint32_t bytes = packet == layout->packets - 1 ? layout->last_bytes : layout->full_bytes;
    uint32_t elements = bytes / layout->element_bytes;
    float total = 0;
    switch (layout->element_type) {
    case MLT_FLOAT32:
        total = sum(row, elements, 4, magnitude_float32);
        break;
    case MLT_FLOAT16:
        total = sum(row, elements, 2, magnitude_float16);
        break;
    case MLT_BFLOAT16:
        total = sum(row, elements, 2, magnitude_bfloat16);
        break;
    case MLT_FLOAT64:
        total = sum(row, elements, 8, magnitude_float64);
        break;
    case MLT_INT8:
        total = sum(row, elements, 1, magnitude_int8);
        break;
    case MLT_INT16:
        total = sum(row, elements, 2, magnitude_int16);
        break;
    case MLT_INT32:
        total = sum(row, elements, 4, magnitude_int32);
        break;
    case MLT_INT64:
        total = sum(row, elements, 8, magnitude_int64);
        break;
    default:
        total = sum(row, elements, 1, magnitude_bytes);
    }
    return total / (float)elements;
}

static int compare(const void *first, const void *second)
{
    float one = *(const float *)first, other = *(const float *)second;
    return (one > other) - (one < other);
}

/* Whole packets, evenly spread from a place that changes with the round. */
float importance_threshold(const struct transfer *transfer)
{
    float means[MOST_SAMPLE];
    const struct layout *layout = &transfer->layout;
    uint32_t wanted = layout->packets / SAMPLE_OF;
    wanted = wanted < LEAST_SAMPLE ? LEAST_SAMPLE : wanted > MOST_SAMPLE ? MOST_SAMPLE : wanted;
    if (wanted > layout->packets)
        wanted = layout->packets;
    uint64_t state = (transfer->send.seed ^ (uint64_t)transfer->send.round << 17) | 1;
    uint64_t start = random_next(&state) % layout->packets;
    for (uint32_t number = 0; number < wanted; number++) {
        uint64_t packet = (start + (uint64_t)number * layout->packets / wanted) % layout->packets;
        means[number] = importance_mean(layout, transfer->memory, (uint32_t)packet);
    }
    qsort(means, wanted, sizeof *means, compare);
    return means[wanted / 2];
}
