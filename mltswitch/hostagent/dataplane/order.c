/* The order of a tensor's packets on the wire: a permutation of windows, and of the bursts within each.
 *
 * It changes with the round and with each pass, so that whatever a receiver leaves out is spread evenly; and each window
 * is read once, while it is in the cache. No memory: the window at a step is an affine function of the step.
 */
#include "internal.h"

enum { CACHE_LINE_BYTES = 64 };

static uint32_t fewer(uint32_t one, uint32_t other)
{
    return one < other ? one : other;
}

/* Packets of a burst: what was asked for, as far as one message of the kernel can be. */
uint32_t burst_packets(const struct transfer *transfer)
{
    uint32_t datagram_bytes = transfer->layout.full_bytes + HEADER_BYTES + TAG_BYTES;
    uint32_t most = fewer(MLT_BURST_PACKETS, MLT_BURST_BYTES / datagram_bytes);
    uint32_t wanted = transfer->send.burst_packets ? transfer->send.burst_packets : MLT_BURST_PACKETS;
    if (transfer->left)
        most = fewer(most, fewer(MOST_AT_ONCE, AT_ONCE_BYTES / datagram_bytes));
    return fewer(wanted, most ? most : 1);
}

static uint32_t common_divisor(uint32_t one, uint32_t other)
{
    while (other) {
        uint32_t rest = one % other;
        one = other;
        other = rest;
    }
    return one;
}

static uint64_t seed_of(const struct transfer *transfer, uint32_t attempt, uint32_t window)
{
    uint64_t state = transfer->send.seed * 0x9E3779B97F4A7C15ULL ^ transfer->send.round * 0xD6E8FEB86659FD93ULL
        ^ ((uint64_t)attempt << 40) ^ ((uint64_t)window * 0xA0761D6478BD642FULL);
    state = (state ^ state >> 32) * 0xD6E8FEB86659FD93ULL;
    return state | 1;
}

static uint32_t below(uint64_t *state, uint32_t limit)
{
    return (uint32_t)((random_next(state) >> 32) * limit >> 32);
}

void pass_begin(struct transfer *transfer, uint32_t attempt)
{
    struct pass *pass = &transfer->pass;
    uint32_t burst = burst_packets(transfer);
    uint32_t window = fewer(MLT_WINDOW_PACKETS, MLT_WINDOW_BYTES / transfer->layout.full_bytes) / burst * burst;
    uint64_t state = seed_of(transfer, attempt, UINT32_MAX);
    *pass = (struct pass){.attempt = attempt, .window_packets = window > burst ? window : burst};
    pass->windows = (transfer->layout.packets - 1) / pass->window_packets + 1;
    pass->shift = below(&state, pass->windows);
    pass->factor = 1 + below(&state, pass->windows);
    while (common_divisor(pass->windows, pass->factor) != 1)
        pass->factor++;
    transfer->result.passes = attempt;
}

static void shuffle(struct burst *bursts, uint32_t count, uint64_t *state)
{
    for (uint32_t place = count; place > 1; place--) {
        uint32_t other = below(state, place);
        struct burst kept = bursts[place - 1];
        bursts[place - 1] = bursts[other];
        bursts[other] = kept;
    }
}

/* Appends bursts of the packets of one importance that `order` has from `first` to `end`. */
static void cut(struct pass *pass, uint32_t first, uint32_t end, uint32_t burst, bool is_important, uint64_t *state)
{
    uint32_t before = pass->burst_count;
    for (uint32_t at = first; at < end; at += burst)
        pass->bursts[pass->burst_count++] = (struct burst){(uint8_t)at, (uint8_t)fewer(burst, end - at), is_important};
    shuffle(pass->bursts + before, pass->burst_count - before, state);
}

static bool is_wanted(const struct transfer *transfer, uint32_t packet, bool is_important)
{
    return bit_is_set(transfer->important, packet) == is_important
        && (transfer->pass.attempt == 1 || !bit_is_set(transfer->arrived, packet));
}

static void classify(struct transfer *transfer, uint32_t first, uint32_t end)
{
    if (transfer->send.importance == MLT_BY_MAGNITUDE) {
        if (!transfer->has_threshold) {
            transfer->threshold = importance_threshold(transfer);
            transfer->has_threshold = true;
        }
        for (uint32_t packet = first; packet < end; packet++) /* what is no number is important */
            if (!(importance_mean(&transfer->layout, transfer->memory, packet) < transfer->threshold))
                bit_set(transfer->important, packet);
    }
    for (uint32_t packet = first; packet < end; packet++)
        transfer->result.important_packets += bit_is_set(transfer->important, packet);
}

/* Bursts leave in any order, and with headers between them the processor does not see what comes next. What is read in
 * order, once, before the kernel copies it, comes at the memory's full speed. */
static void read_ahead(const struct transfer *transfer, uint32_t first, uint32_t end)
{
    const uint8_t *at = transfer->memory + (size_t)first * transfer->layout.full_bytes;
    const uint8_t *behind = transfer->memory + (size_t)(end - 1) * transfer->layout.full_bytes;
    for (; at < behind; at += CACHE_LINE_BYTES)
        (void)*(const volatile uint8_t *)at;
}

/* Where repairs are made at once, a pass has a phase of critical packets and one of the others, as later passes have; its
 * sender begins the second one. */
bool pass_window(struct transfer *transfer)
{
    struct pass *pass = &transfer->pass;
    bool is_split = pass->attempt > 1 || transfer->left;
    uint32_t burst = burst_packets(transfer);
    for (;;) {
        if (pass->step == pass->windows) {
            if (pass->attempt == 1 || pass->phase == 1)
                return false;
            pass->phase = 1;
            pass->step = 0;
        }
        uint32_t window = (uint32_t)(((uint64_t)pass->factor * pass->step++ + pass->shift) % pass->windows);
        uint32_t count = 0, important = 0;
        uint64_t state = seed_of(transfer, pass->attempt, window);
        pass->base = window * pass->window_packets;
        uint32_t end = fewer(pass->base + pass->window_packets, transfer->layout.packets);
        if (pass->attempt == 1) {
            /* The sums of the magnitude read all of it, in order. */
            if (transfer->left ? pass->phase == 1 : transfer->send.importance != MLT_BY_MAGNITUDE)
                read_ahead(transfer, pass->base, end);
            if (pass->phase == 0)
                classify(transfer, pass->base, end);
        }
        pass->burst_count = pass->burst_next = 0;
        if (!is_split || pass->phase == 0)
            for (uint32_t packet = pass->base; packet < end; packet++)
                if (is_wanted(transfer, packet, true))
                    pass->order[count++] = (uint8_t)(packet - pass->base);
        important = count;
        if (!is_split || pass->phase == 1)
            for (uint32_t packet = pass->base; packet < end; packet++)
                if (is_wanted(transfer, packet, false))
                    pass->order[count++] = (uint8_t)(packet - pass->base);
        cut(pass, 0, important, burst, true, &state);
        cut(pass, important, count, burst, false, &state);
        if (count)
            return true;
    }
}
