/* A live receiver under attack: random, mutated, replayed and forged datagrams, to be built with sanitizers.
 *
 *   fuzz SEED DATAGRAMS
 *
 * Promise: no crash, nothing outside of the tensor is written, next to nothing is kept. With keys, what a stranger makes of
 * packets that it has seen changes no byte of a tensor, and the true transfers still succeed.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane.h"

enum { SEEN = 512, MOST_BYTES = 9000, ELEMENTS = 20000, GUARD_BYTES = 64, ROUND_DATAGRAMS = 2000 };

struct seen {
    uint32_t length;
    uint8_t bytes[MOST_BYTES];
};

static struct seen seen[SEEN];
static int seen_count;
static uint64_t state;
static int64_t now_ns = 1000000000;
static uint32_t frame_guess;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1DULL >> 11;
}

static void fail(const char *what)
{
    puts(what);
    exit(1);
}

static void open_ends(struct mlt **ends, uint64_t *tokens, bool has_keys, enum mlt_repair repair)
{
    for (int end = 0; end < 2; end++) {
        struct mlt_options options = {.seed = draw() | 1, .now_ns = now_ns};
        ends[end] = mlt_create(&options);
        mlt_reserve(ends[end], &tokens[end]);
    }
    for (int end = 0; end < 2; end++) {
        struct mlt_flow_options options = {.peer_token = tokens[1 - end], .send_datagram_bytes = 1472,
                                           .receive_datagram_bytes = 1472, .has_keys = has_keys, .repair = (uint8_t)repair};
        struct mlt_path paths[2] = {{.weight = 1}, {.weight = 1}};
        memset(options.send_key, 'a' + end, sizeof options.send_key);
        memset(options.receive_key, 'b' - end, sizeof options.receive_key);
        if (mlt_open(ends[end], tokens[end], &options, paths, 2))
            fail("open");
    }
}

static void write_small(uint8_t *at, uint32_t number)
{
    for (int byte = 0; byte < 4; byte++)
        at[byte] = (uint8_t)(number >> (24 - 8 * byte));
}

/* Messages that could be the peer's, but for their numbers. */
static uint32_t invent_messages(uint8_t *bytes)
{
    static const uint8_t lengths[] = {0, 20, 24, 18, 20, 16, 12, 5, 8, 0, 0, 28};
    uint32_t used = 0;
    for (uint64_t count = draw() % 4; count; count--) {
        uint8_t *body = bytes + used + 4, type = (uint8_t)(1 + draw() % 11), length = (uint8_t)(lengths[type] + draw() % 3);
        memset(body - 4, 0, 4u + length);
        body[-4] = type;
        body[-1] = length;
        write_small(body, 7);
        write_small(body + 4, (uint32_t)(draw() % 3));
        for (uint32_t at = 11; at < length; at += 4)
            body[at] = (uint8_t)(draw() % 4 ? draw() % 3 : draw());
        if (type == 1) { /* READY of the tensor that there is */
            body[8] = 1;
            write_small(body + 16, 20000);
        }
        used += 4u + length;
    }
    return used;
}

/* A datagram of the attacker's: nothing but noise, or one that was seen with some bytes changed, or as it was. */
static uint32_t invent(uint8_t *bytes, uint64_t token)
{
    const struct seen *model = seen_count ? &seen[draw() % (uint64_t)seen_count] : NULL;
    uint64_t kind = draw() % 4;
    uint32_t length = (uint32_t)(draw() % 1600);
    if (model && kind) {
        length = model->length;
        memcpy(bytes, model->bytes, length);
        if (kind == 1)
            return length;
        for (uint64_t changes = 1 + draw() % 8; changes; changes--)
            bytes[draw() % (draw() % 2 ? length : length < 64 ? length : 64)] = (uint8_t)draw();
        if (draw() % 8 == 0)
            length = (uint32_t)(draw() % (length + 1));
        return length;
    }
    for (uint32_t at = 0; at < length || at < 48; at++)
        bytes[at] = (uint8_t)draw();
    bytes[0] = 2;
    bytes[1] = (uint8_t)(1 + draw() % 5);
    if (draw() % 2)
        bytes[2] &= 7;
    for (int at = 0; at < 8; at++)
        bytes[4 + at] = (uint8_t)(token >> (56 - 8 * at));
    write_small(bytes + 12, 7); /* the tensor, and a round of it */
    write_small(bytes + 16, (uint32_t)(draw() % 3));
    write_small(bytes + 20, (uint32_t)(draw() % 2));
    write_small(bytes + 24, frame_guess + (uint32_t)(draw() % 3));
    write_small(bytes + 28, draw() % 2 ? 1 : (uint32_t)(draw() % 8));
    if (bytes[1] == 5) { /* pieces of the bitmap of the tensor that there is */
        uint32_t pieces = (uint32_t)(draw() % 4);
        for (uint32_t piece = 0; piece < pieces; piece++) {
            write_small(bytes + 60 + 28 * piece, 7);
            write_small(bytes + 64 + 28 * piece, (uint32_t)(draw() % 3));
            write_small(bytes + 68 + 28 * piece, (uint32_t)(draw() % 4));
        }
        return 60 + 28 * pieces + (draw() % 8 == 0);
    }
    if (bytes[1] == 4)
        return 40 + invent_messages(bytes + 40);
    return length < 48 ? 48 : length;
}

static void exchange(struct mlt *from, struct mlt *to)
{
    static uint8_t bytes[1 << 17];
    struct mlt_output output;
    while (mlt_take_output(from, &output, bytes, sizeof bytes) > 0) {
        for (uint32_t at = 0; at < output.bytes; at += output.segment_bytes) {
            struct seen *kept = &seen[seen_count < SEEN ? seen_count++ : (int)(draw() % SEEN)];
            kept->length = output.bytes - at < output.segment_bytes ? output.bytes - at : output.segment_bytes;
            memcpy(kept->bytes, bytes + at, kept->length);
        }
        mlt_feed(to, bytes, output.bytes, output.segment_bytes, output.tos, now_ns);
    }
}

static void attack(bool has_keys, enum mlt_repair repair, int datagrams)
{
    static float source[ELEMENTS];
    static uint8_t target[ELEMENTS * sizeof(float) + 2 * GUARD_BYTES];
    struct mlt *ends[2];
    uint64_t tokens[2], transfers[2] = {0};
    struct mlt_result results[2];
    open_ends(ends, tokens, has_keys, repair);
    for (int at = 0; at < ELEMENTS; at++)
        source[at] = (float)(1 + at);
    memset(target, 0xA5, sizeof target);
    seen_count = 0;
    struct mlt_send send = {.flow = tokens[0], .elements = source, .element_count = ELEMENTS, .element_type = MLT_FLOAT32,
                            .tensor = 7, .deadline_ns = 3600000000000};
    struct mlt_receive receive = {.flow = tokens[1], .elements = target + GUARD_BYTES, .element_count = ELEMENTS,
                                  .element_type = MLT_FLOAT32, .tensor = 7, .policy.hard_ns = 3600000000000};
    mlt_post_sends(ends[0], &send, 1, &transfers[0]);
    mlt_post_receives(ends[1], &receive, 1, &transfers[1]);
    receive.policy.loss_bound = 0.2;
    if (repair == MLT_AT_ONCE) {
        receive.policy.stop_rule = MLT_GATHERED;
        receive.policy.gather = (struct mlt_gather){.number = 1, .percentage = 0.9, .lt_ns = MLT_LT_REGISTERED};
    }
    bool is_done = false;
    for (int number = 0; number < datagrams || (has_keys && !is_done); number++) {
        static uint8_t bytes[1 << 16];
        int victim = (int)(draw() % 2);
        if (number < datagrams) {
            uint32_t length = invent(bytes, tokens[victim]);
            uint32_t segment_bytes = draw() % 8 ? length : (uint32_t)(draw() % (length + 1));
            uint8_t *exact = malloc(length ? length : 1); /* so that a byte too many is seen */
            memcpy(exact, bytes, length);
            mlt_feed(ends[victim], exact, length, segment_bytes, (uint8_t)draw(), now_ns);
            free(exact);
        }
        now_ns += (int64_t)(draw() % 20000);
        frame_guess = 1 + (uint32_t)number / 100;
        if (draw() % 4 == 0 || number >= datagrams)
            for (int end = 0; end < 2; end++) {
                mlt_step(ends[end], now_ns);
                if (number > datagrams / 2 || draw() % 2)
                    exchange(ends[end], ends[1 - end]);
            }
        is_done = has_keys && mlt_wait(ends[0], transfers[0], 0, &results[0]) == MLT_OK
            && mlt_wait(ends[1], transfers[1], 0, &results[1]) == MLT_OK;
        for (int end = 0; end < 2 && !has_keys; end++) /* without keys, what the peer seems to say ends transfers */
            if (mlt_wait(ends[end], transfers[end], 0, NULL) == MLT_OK) {
                mlt_release(ends[end], transfers[end]);
                send.round = receive.round = (uint32_t)(draw() % 3);
                if (end ? mlt_post_receives(ends[1], &receive, 1, &transfers[1])
                        : mlt_post_sends(ends[0], &send, 1, &transfers[0]))
                    fail("post");
            }
        if (has_keys && number > datagrams + 100000)
            fail("a transfer did not end");
    }
    for (int at = 0; at < GUARD_BYTES; at++)
        if (target[at] != 0xA5 || target[sizeof target - 1 - (size_t)at] != 0xA5)
            fail("a byte outside of the tensor was written");
    if (has_keys && (results[0].status || results[1].status || memcmp(target + GUARD_BYTES, source, sizeof source)))
        fail("a stranger changed a transfer");
    mlt_destroy(ends[0]);
    mlt_destroy(ends[1]);
}

int main(int count, char **words)
{
    state = (count > 1 ? strtoull(words[1], NULL, 10) : 1) * 0x9E3779B97F4A7C15ULL | 1;
    long datagrams = count > 2 ? strtol(words[2], NULL, 10) : 100000;
    for (long done = 0; done < datagrams; done += ROUND_DATAGRAMS)
        attack(done / ROUND_DATAGRAMS % 2, done / ROUND_DATAGRAMS / 2 % 2 ? MLT_AT_ONCE : MLT_IN_PASSES, ROUND_DATAGRAMS);
    printf("%ld datagrams\n", datagrams);
    return 0;
}
