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

static inline float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Each element type: how its elements lie in memory, and the magnitude of such a `value`. Exponents of float16 begin 112
 * lower; the product is right for subnormal numbers, too, and large for infinity. */
#define ELEMENT_TYPES(EACH) \
    EACH(MLT_FLOAT32, uint32_t, from_bits(value & 0x7FFFFFFF)) \
    EACH(MLT_FLOAT16, uint16_t, from_bits((uint32_t)(value & 0x7FFF) << 13) * 0x1p112F) \
    EACH(MLT_BFLOAT16, uint16_t, from_bits((uint32_t)(value & 0x7FFF) << 16)) \
    EACH(MLT_FLOAT64, double, (float)fabs(value)) \
    EACH(MLT_INT8, int8_t, fabsf((float)value)) \
    EACH(MLT_INT16, int16_t, fabsf((float)value)) \
    EACH(MLT_INT32, int32_t, fabsf((float)value)) \
    EACH(MLT_INT64, int64_t, fabsf((float)value)) \
    EACH(MLT_BYTES, uint8_t, (float)value)

uint8_t element_bytes(uint8_t element_type)
{
#define BYTES(type, stored, magnitude) [type] = sizeof(stored),
    static const uint8_t bytes[] = {ELEMENT_TYPES(BYTES)};
    return element_type < sizeof bytes ? bytes[element_type] : 0;
}

#define FUNCTION(type, stored, magnitude) \
    static inline float magnitude_of_##type(const uint8_t *at) \
    { \
        stored value; \
        memcpy(&value, at, sizeof value); \
        return magnitude; \
    }
ELEMENT_TYPES(FUNCTION)

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
    uint32_t elements = layout_bytes(layout, packet) / layout->element_bytes;
#define CASE(type, stored, magnitude) \
    case type: \
        return sum(row, elements, sizeof(stored), magnitude_of_##type) / (float)elements;
    switch ((enum mlt_element_type)layout->element_type) {
        ELEMENT_TYPES(CASE)
    }
    return 0; /* layout_of knows no other type */
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
