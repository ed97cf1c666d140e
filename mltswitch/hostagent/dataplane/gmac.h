/* AES-128-GMAC (NIST SP 800-38D): the tag that AES-GCM gives to a message that is authenticated but not encrypted. */
#ifndef MLT_GMAC_H
#define MLT_GMAC_H

#include <stdint.h>
#include <sys/uio.h>

enum { GMAC_POWERS = 32, GMAC_ROUND_KEYS = 11 };

/* What is derived from a key, the same for all implementations. It is only read while tags are computed, so threads
 * may share it. Erase it like the key.
 */
struct gmac {
    _Alignas(64) uint64_t powers[GMAC_POWERS][2]; /* the highest power of the hash key H first, H itself last */
    uint8_t round_keys[GMAC_ROUND_KEYS][16];
};

void gmac_init(struct gmac *gmac, const uint8_t key[16]);

/* Computes the tag of the message that the parts make when laid end to end. A nonce must never come twice under one
 * key: whoever sees two tags under one nonce can forge others. A part of length 0 may have any address.
 */
void gmac_tag(const struct gmac *gmac, const uint8_t nonce[12], const struct iovec *parts, int count, uint8_t tag[16]);

/* Returns 1 if the tags are equal, else 0, in a time that does not depend on the tags. */
int gmac_equal(const uint8_t a[16], const uint8_t b[16]);

/* Names the implementation that gmac_tag uses now. */
const char *gmac_implementation(void);

/* For tests: 1 is portable C whatever the processor can do, 2 leaves out only AVX-512, 0 is the fastest again. Returns
 * the setting before.
 */
int gmac_force_portable(int on);

#endif
