/* Sums of |element| of rows that lie one behind the other, aligned or not: of all of them, or of those chosen by their
 * numbers. Sixteen sums a row, because compilers may not change the order of additions.
 */
#include <stdint.h>
#include <string.h>

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
    void name(const uint8_t *rows, const int64_t *chosen, int64_t count, int64_t elements,        \
              float *sums)                                                                        \
    {                                                                                             \
        for (int64_t place = 0; place < count; place++) {                                         \
            const uint8_t *row = rows + (chosen ? chosen[place] : place) * elements * size_bytes; \
            float lanes[LANES] = {0};                                                             \
            int64_t at = 0;                                                                       \
            for (; at + LANES <= elements; at += LANES)                                           \
                for (int lane = 0; lane < LANES; lane++)                                          \
                    lanes[lane] += magnitude(row + (at + lane) * size_bytes);                     \
            for (int lane = 0; at < elements; at++, lane++)                                       \
                lanes[lane] += magnitude(row + at * size_bytes);                                  \
            for (int half = LANES / 2; half; half /= 2)                                           \
                for (int lane = 0; lane < half; lane++)                                           \
                    lanes[lane] += lanes[lane + half];                                            \
            sums[place] = lanes[0];                                                               \
        }                                                                                         \
    }

SUM_ROWS(mlt_sum_float32, 4, of_float32)
SUM_ROWS(mlt_sum_bfloat16, 2, of_bfloat16)
