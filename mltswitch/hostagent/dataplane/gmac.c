/* AES-128-GMAC: GHASH over the message, plus one AES block of the nonce.
 *
 * Numbers in GHASH are polynomials over GF(2) modulo x^128 + x^7 + x^2 + x + 1 with the coefficient of x^0 in the first
 * bit of the first byte. A block read in big-endian order is therefore a polynomial with its coefficients mirrored, and
 * a carry-less product of two mirrored numbers lies one bit too low. Dividing one factor by x beforehand mends that
 * for good, so the table of powers holds H^i / x. Such a product is 256 bits, of which the lower half is to be reduced.
 *
 * A message of n blocks m has the hash m[1] H^n + ... + m[n] H. Blocks are taken in groups of up to GMAC_POWERS whose
 * products are added up before one reduction. The first group is the short one: the last block always meets H.
 *
 * No branch and no address depends on the key, the hash or the message's bytes.
 */
#include "gmac.h"

#include <stdatomic.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "gmac.c reads words in little-endian order"
#endif

__extension__ typedef unsigned __int128 uint128;

#define REDUCTION 0xC200000000000000u /* x^128 = 1 + x + x^2 + x^7, mirrored; exchanging halves adds the 1 */

static inline uint64_t load64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Adds the products of blocks and as many powers of H to a sum, and reduces the sum if the group ends with them. */
typedef void add_products(void *sum, const uint8_t *at, const uint64_t *powers, size_t blocks, int group_ends);

struct groups {
    const struct gmac *gmac;
    size_t power; /* which the next block meets */
    add_products *add;
    void *sum;
};

#define ALWAYS_INLINE static inline __attribute__((always_inline)) /* so that `add` is no call */

ALWAYS_INLINE void absorb(struct groups *groups, const uint8_t *at, size_t blocks)
{
    while (blocks) {
        size_t open = GMAC_POWERS - groups->power, taken = blocks < open ? blocks : open;
        groups->add(groups->sum, at, groups->gmac->powers[groups->power], taken, taken == open);
        groups->power = (groups->power + taken) % GMAC_POWERS;
        at += 16 * taken;
        blocks -= taken;
    }
}

/* Absorbs the parts, zeros up to a whole block, and the length. Only blocks that lie in several parts are copied. */
ALWAYS_INLINE void absorb_message(const struct gmac *gmac, const struct iovec *parts, int count, add_products *add,
                                  void *sum)
{
    uint8_t rest[32];
    size_t held = 0, total = 0;
    for (int part = 0; part < count; part++)
        total += parts[part].iov_len;
    size_t padding = -total % 16, all = (total + padding) / 16 + 1;
    struct groups groups = {gmac, -all % GMAC_POWERS, add, sum};
    for (int part = 0; part < count; part++) {
        const uint8_t *at = parts[part].iov_base;
        size_t left = parts[part].iov_len;
        if (held && left) {
            size_t taken = left < 16 - held ? left : 16 - held;
            memcpy(rest + held, at, taken);
            at += taken;
            left -= taken;
            held = (held + taken) % 16;
            if (held)
                continue;
            absorb(&groups, rest, 1);
        }
        absorb(&groups, at, left / 16);
        if (left % 16) {
            held = left % 16;
            memcpy(rest, at + (left - held), held);
        }
    }
    uint64_t bits = __builtin_bswap64((uint64_t)total * 8);
    memset(rest + held, 0, sizeof rest - held);
    memcpy(rest + held + padding, &bits, sizeof bits);
    absorb(&groups, rest, (held + padding) / 16 + 1);
}

/* ---- Portable: AES by arithmetic on eight bytes at a time, carry-less products by integer multiplication. ---- */

#define EACH_BYTE(byte) (0x0101010101010101u * (byte))

/* Shifts each byte left and adds `wrapped` where a 1 falls out: 1 rotates, 0x1B multiplies by x in AES's field. */
static inline uint64_t shift_bytes(uint64_t bytes, uint64_t wrapped)
{
    return (bytes & EACH_BYTE(0x7F)) << 1 ^ (bytes >> 7 & EACH_BYTE(1)) * wrapped;
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (int bit = 0; bit < 8; bit++, a = shift_bytes(a, 0x1B))
        product ^= a & (b >> bit & EACH_BYTE(1)) * 0xFF;
    return product;
}

/* The S-box of eight bytes: the inverse in GF(2^8), which is the power of 254 = 2 + 4 + ... + 128, and a linear map. */
static uint64_t substitute(uint64_t bytes)
{
    uint64_t square = bytes, inverse = EACH_BYTE(1);
    for (int step = 0; step < 7; step++) {
        square = times(square, square);
        inverse = times(inverse, square);
    }
    uint64_t result = inverse ^ EACH_BYTE(0x63);
    for (int step = 0; step < 4; step++)
        result ^= inverse = shift_bytes(inverse, 1);
    return result;
}

static uint64_t mix_columns(uint64_t columns)
{
    uint64_t by_one = (columns >> 8 & 0x00FFFFFF00FFFFFFu) | (columns << 24 & 0xFF000000FF000000u);
    uint64_t pairs = columns ^ by_one;
    uint64_t by_two = (pairs >> 16 & 0x0000FFFF0000FFFFu) | (pairs << 16 & 0xFFFF0000FFFF0000u);
    return shift_bytes(pairs, 0x1B) ^ by_one ^ by_two;
}

static void encrypt_portable(const struct gmac *gmac, const uint8_t block[16], uint8_t result[16])
{
    uint64_t state[2];
    for (int half = 0; half < 2; half++)
        state[half] = load64(block + 8 * half) ^ load64(gmac->round_keys[0] + 8 * half);
    for (int round = 1; round < GMAC_ROUND_KEYS; round++) {
        uint8_t bytes[16], shifted[16];
        memcpy(bytes, state, sizeof bytes);
        for (int place = 0; place < 16; place++)
            shifted[place] = bytes[place * 5 % 16];
        for (int half = 0; half < 2; half++) {
            state[half] = substitute(load64(shifted + 8 * half));
            if (round < GMAC_ROUND_KEYS - 1)
                state[half] = mix_columns(state[half]);
            state[half] ^= load64(gmac->round_keys[round] + 8 * half);
        }
    }
    memcpy(result, state, sizeof state);
}

/* Multiplies without carries. Of each factor every fifth bit is taken at a time: at most 13 products then meet in one
 * bit, and their carries end before the next bit that counts.
 */
static inline uint128 carryless(uint64_t a, uint64_t b)
{
    const uint64_t fifth = 0x1084210842108421u;
    const uint128 wide = (uint128)(fifth << 1) << 64 | fifth;
    uint128 product = 0;
    for (int bit = 0; bit < 5; bit++) {
        uint128 sum = 0;
        for (int from = 0; from < 5; from++)
            sum ^= (uint128)(a & fifth << from) * (b & fifth << (bit + 5 - from) % 5);
        product ^= sum & wide << bit;
    }
    return product;
}

static uint128 multiply(uint128 number, const uint64_t power[2])
{
    uint64_t low = (uint64_t)number, high = (uint64_t)(number >> 64);
    uint128 lo = carryless(low, power[0]), hi = carryless(high, power[1]);
    uint128 mid = carryless(low, power[1]) ^ carryless(high, power[0]);
    lo ^= mid << 64;
    for (int half = 0; half < 2; half++) {
        uint128 lowest = (uint64_t)lo;
        lo = (lo << 64 | lo >> 64) ^ lowest << 63 ^ lowest << 62 ^ lowest << 57; /* times REDUCTION */
    }
    return hi ^ mid >> 64 ^ lo;
}

static inline uint128 load_mirrored(const uint8_t block[16])
{
    return (uint128)__builtin_bswap64(load64(block)) << 64 | __builtin_bswap64(load64(block + 8));
}

struct portable_sum {
    uint128 hash;
    const uint64_t *h;
};

/* Reduces after each block, so it has no use for groups. */
static void add_portable(void *to, const uint8_t *at, const uint64_t *powers, size_t blocks, int group_ends)
{
    struct portable_sum *sum = to;
    (void)powers, (void)group_ends;
    for (; blocks; blocks--, at += 16)
        sum->hash = multiply(sum->hash ^ load_mirrored(at), sum->h);
}

static void tag_portable(const struct gmac *gmac, const uint8_t nonce[12], const struct iovec *parts, int count,
                         uint8_t tag[16])
{
    uint8_t counter[16] = {[15] = 1}, pad[16];
    memcpy(counter, nonce, 12);
    encrypt_portable(gmac, counter, pad);
    struct portable_sum sum = {0, gmac->powers[GMAC_POWERS - 1]};
    absorb_message(gmac, parts, count, add_portable, &sum);
    for (int place = 0; place < 16; place++)
        tag[place] = (uint8_t)(sum.hash >> (120 - 8 * place)) ^ pad[place];
}

/* ---- x86-64: AES-NI and carry-less multiplication of one or, with AVX-512, four blocks at a time. ---- */

#if defined(__x86_64__)
#include <immintrin.h>

#define SSE __attribute__((target("aes,pclmul,ssse3")))
#define AVX512 __attribute__((target("aes,pclmul,ssse3,vpclmulqdq,avx512f,avx512bw")))
#define MIRROR _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)

SSE static inline __m128i reduced(__m128i lo, __m128i mid, __m128i hi)
{
    lo ^= _mm_slli_si128(mid, 8);
    for (int half = 0; half < 2; half++)
        lo = _mm_shuffle_epi32(lo, 0x4E) ^ _mm_clmulepi64_si128(lo, _mm_set_epi64x(0, (int64_t)REDUCTION), 0);
    return hi ^ _mm_srli_si128(mid, 8) ^ lo;
}

SSE static inline void finish(const struct gmac *gmac, const uint8_t nonce[12], __m128i hash, uint8_t tag[16])
{
    const __m128i *keys = (const __m128i *)gmac->round_keys;
    uint32_t last;
    memcpy(&last, nonce + 8, sizeof last);
    __m128i pad = _mm_set_epi64x((int64_t)((uint64_t)1 << 56 | last), (int64_t)load64(nonce)) ^ keys[0];
    for (int round = 1; round < GMAC_ROUND_KEYS - 1; round++)
        pad = _mm_aesenc_si128(pad, keys[round]);
    pad = _mm_aesenclast_si128(pad, keys[GMAC_ROUND_KEYS - 1]);
    _mm_storeu_si128((__m128i *)tag, pad ^ _mm_shuffle_epi8(hash, MIRROR));
}

/* The hash of whole groups, and the products of the group that is under way. */
struct sse_sum { __m128i hash, lo, mid, hi; };

SSE static inline void add_sse(void *to, const uint8_t *at, const uint64_t *powers, size_t blocks, int group_ends)
{
    struct sse_sum *sum = to;
    for (; blocks; blocks--, at += 16, powers += 2) {
        __m128i power = _mm_load_si128((const __m128i *)powers);
        __m128i block = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)at), MIRROR) ^ sum->hash;
        sum->hash = _mm_setzero_si128();
        sum->lo ^= _mm_clmulepi64_si128(block, power, 0x00);
        sum->mid ^= _mm_clmulepi64_si128(block, power, 0x01) ^ _mm_clmulepi64_si128(block, power, 0x10);
        sum->hi ^= _mm_clmulepi64_si128(block, power, 0x11);
    }
    if (group_ends)
        *sum = (struct sse_sum){.hash = reduced(sum->lo, sum->mid, sum->hi)};
}

SSE static void tag_sse(const struct gmac *gmac, const uint8_t nonce[12], const struct iovec *parts, int count,
                        uint8_t tag[16])
{
    struct sse_sum sum = {.hash = _mm_setzero_si128()};
    absorb_message(gmac, parts, count, add_sse, &sum);
    finish(gmac, nonce, sum.hash, tag);
}

struct avx512_sum { __m512i hash, lo, mid, hi; };

AVX512 static inline __m128i folded(__m512i lanes)
{
    __m256i pair = _mm512_castsi512_si256(lanes) ^ _mm512_extracti64x4_epi64(lanes, 1);
    return _mm256_castsi256_si128(pair) ^ _mm256_extracti128_si256(pair, 1);
}

AVX512 static inline void add_avx512(void *to, const uint8_t *at, const uint64_t *powers, size_t blocks, int group_ends)
{
    struct avx512_sum *sum = to;
    for (size_t taken; blocks; blocks -= taken, at += 16 * taken, powers += 2 * taken) {
        taken = blocks < 4 ? blocks : 4;
        __mmask8 words = (__mmask8)((1u << 2 * taken) - 1);
        __m512i power = _mm512_maskz_loadu_epi64(words, powers), block = _mm512_maskz_loadu_epi64(words, at);
        block = _mm512_shuffle_epi8(block, _mm512_broadcast_i32x4(MIRROR)) ^ sum->hash;
        sum->hash = _mm512_setzero_si512();
        sum->lo ^= _mm512_clmulepi64_epi128(block, power, 0x00);
        sum->mid ^= _mm512_clmulepi64_epi128(block, power, 0x01) ^ _mm512_clmulepi64_epi128(block, power, 0x10);
        sum->hi ^= _mm512_clmulepi64_epi128(block, power, 0x11);
    }
    if (group_ends) {
        __m128i hash = reduced(folded(sum->lo), folded(sum->mid), folded(sum->hi));
        *sum = (struct avx512_sum){.hash = _mm512_zextsi128_si512(hash)};
    }
}

AVX512 static void tag_avx512(const struct gmac *gmac, const uint8_t nonce[12], const struct iovec *parts, int count,
                              uint8_t tag[16])
{
    struct avx512_sum sum = {.hash = _mm512_setzero_si512()};
    absorb_message(gmac, parts, count, add_avx512, &sum);
    finish(gmac, nonce, _mm512_castsi512_si128(sum.hash), tag);
}
#endif

static atomic_int forced; /* what gmac_force_portable takes */

struct implementation {
    const char *name;
    void (*tag)(const struct gmac *, const uint8_t *, const struct iovec *, int, uint8_t *);
};

static inline struct implementation implementation(void)
{
#if defined(__x86_64__)
    int without = atomic_load_explicit(&forced, memory_order_relaxed);
    if (without != 1 && __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul") &&
        __builtin_cpu_supports("ssse3")) {
        if (without != 2 && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx512bw"))
            return (struct implementation){"AES-NI, VPCLMULQDQ, AVX-512", tag_avx512};
        return (struct implementation){"AES-NI, PCLMULQDQ", tag_sse};
    }
#endif
    return (struct implementation){"portable", tag_portable};
}

const char *gmac_implementation(void) { return implementation().name; }

int gmac_force_portable(int on) { return atomic_exchange(&forced, on); }

void gmac_init(struct gmac *gmac, const uint8_t key[16])
{
    uint8_t zeros[16] = {0}, block[16], (*keys)[16] = gmac->round_keys;
    memcpy(keys[0], key, 16);
    uint64_t constant = 1;
    for (int round = 1; round < GMAC_ROUND_KEYS; round++, constant = shift_bytes(constant, 0x1B)) {
        uint64_t last = substitute(load64(keys[round - 1] + 8)) >> 32;
        uint32_t word = (uint32_t)(last >> 8 | last << 24) ^ (uint32_t)constant;
        for (int place = 0; place < 16; place += 4) {
            uint32_t before;
            memcpy(&before, keys[round - 1] + place, sizeof before);
            word ^= before;
            memcpy(keys[round] + place, &word, sizeof word);
        }
    }
    encrypt_portable(gmac, zeros, block);
    uint128 power = load_mirrored(block);
    for (int place = GMAC_POWERS - 1; place >= 0; place--) {
        uint128 divided = power << 1 ^ (power >> 127) * ((uint128)REDUCTION << 64 | 1);
        gmac->powers[place][0] = (uint64_t)divided;
        gmac->powers[place][1] = (uint64_t)(divided >> 64);
        power = multiply(power, gmac->powers[GMAC_POWERS - 1]);
    }
}

void gmac_tag(const struct gmac *gmac, const uint8_t nonce[12], const struct iovec *parts, int count, uint8_t tag[16])
{
    implementation().tag(gmac, nonce, parts, count, tag);
}

int gmac_equal(const uint8_t a[16], const uint8_t b[16])
{
    uint64_t difference = (load64(a) ^ load64(b)) | (load64(a + 8) ^ load64(b + 8));
    __asm__("" : "+r"(difference)); /* keeps compilers from branching where the first bytes differ */
    return (int)(((difference | -difference) >> 63) ^ 1);
}
