/* A data plane and up to twelve others in virtual time, and between them a network that loses, doubles, delays, reorders
 * and corrupts, and has a link that all of them share; some scenarios have a liar on the way, who rewrites grants.
 *
 *   campaign FIRST_SEED SCENARIOS
 *
 * Promise: every transfer ends by its deadline, with the right bytes within its bounds, or with a named error; nothing is
 * written outside of a tensor; something is always due while a transfer is open; the same seed makes the same packets.
 * Where the network loses a fifth or less, every transfer succeeds; with credit nothing leaves without. Flows repair in passes or at once, and where at once,
 * receives may end early in gathers: with all critical packets, and not before their link's LT unless complete. Prints the seed of what broke a promise, and counts.
 */
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dataplane.h"
#include "wire.h"

enum { MOST_TRANSFERS = 16, MOST_PEERS = 12, HUB = 0, MOST_FLYING = 1 << 16, GUARD_BYTES = 64, MOST_BYTES = 1 << 18, PATHS = 4 };
#define MILLISECOND INT64_C(1000000)
#define SECOND (1000 * MILLISECOND)

struct flying {
    int64_t at_ns;
    uint64_t order;
    int to;
    uint8_t tos;
    uint32_t bytes;
    uint8_t *data;
};

struct exchange {
    int pair, ends[2]; /* handles of the sender and of the receiver */
    struct mlt_send send;
    struct mlt_receive receive;
    int64_t send_at_ns, receive_at_ns;
    uint64_t ids[2];
    bool is_posted[2], is_done[2];
    struct mlt_result results[2];
    uint8_t *source, *target;
    size_t bytes;
};

static uint64_t state;
static struct flying *heap[MOST_FLYING];
static int flying_count;
static uint64_t order, hash;
static double loss[PATHS], doubled, corrupted, forged;
static int64_t delay_ns[PATHS], jitter_ns;
static double link_bps;          /* of all that goes to the hub, or comes from it; 0: no limit */
static int64_t link_free_ns[2], buffer_ns;
static uint64_t tokens[MOST_PEERS + 1][2]; /* of each pair: at the hub, at the other end */
static int pairs;
static uint64_t seed_now;

static uint64_t draw(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state * 0x2545F4914F6CDD1DULL >> 11;
}

static uint64_t below(uint64_t limit) { return draw() % limit; }
static bool chance(double share) { return (double)draw() < share * 9007199254740992.0; }

static void broken(const char *what)
{
    printf("seed %lu: %s\n", seed_now, what);
    exit(1);
}

static bool is_before(const struct flying *one, const struct flying *other)
{
    return one->at_ns < other->at_ns || (one->at_ns == other->at_ns && one->order < other->order);
}

static void launch(struct flying *packet)
{
    int place = flying_count++;
    if (flying_count == MOST_FLYING)
        broken("a flood");
    for (; place && is_before(packet, heap[(place - 1) / 2]); place = (place - 1) / 2)
        heap[place] = heap[(place - 1) / 2];
    heap[place] = packet;
}

static struct flying *land(void)
{
    struct flying *first = heap[0], *last = heap[--flying_count];
    int place = 0;
    for (int child; (child = 2 * place + 1) < flying_count; place = child) {
        if (child + 1 < flying_count && is_before(heap[child + 1], heap[child]))
            child++;
        if (!is_before(heap[child], last))
            break;
        heap[place] = heap[child];
    }
    heap[place] = last;
    return first;
}

/* When what leaves now has passed the shared link; -1: its queue is full. */
static int64_t passed_ns(bool is_to_hub, uint32_t bytes, int64_t now_ns)
{
    if (link_bps <= 0)
        return now_ns;
    int64_t *free_ns = &link_free_ns[is_to_hub], begin_ns = *free_ns > now_ns ? *free_ns : now_ns;
    if (begin_ns - now_ns > buffer_ns)
        return -1;
    *free_ns = begin_ns + (int64_t)(bytes * 8 * 1e9 / link_bps);
    return *free_ns;
}

static int pair_of(uint64_t token)
{
    for (int pair = 1; pair <= pairs; pair++)
        if (tokens[pair][0] == token)
            return pair;
    return broken("a packet of no flow"), 0;
}

/* Somewhat more, nothing, or anything at all. */
static void forge(uint8_t *datagram)
{
    uint8_t kind = datagram[KIND_OFFSET], *grant = datagram + GRANTED_OFFSET;
    uint32_t told = read32(grant);
    if (kind == KIND_ACKNOWLEDGEMENT || kind == KIND_SELECTIVE || kind == KIND_CONTROL)
        write32(grant, (uint32_t)(chance(0.5) ? told + below(1 << 20) : chance(0.5) ? told - below(1 << 20) : draw()));
}

static void carry(struct mlt *from, int at_end, int64_t now_ns)
{
    static uint8_t bytes[1 << 17];
    struct mlt_output output;
    while (mlt_take_output(from, &output, bytes, sizeof bytes) > 0)
        for (uint32_t at = 0; at < output.bytes; at += output.segment_bytes) {
            uint32_t size = output.bytes - at < output.segment_bytes ? output.bytes - at : output.segment_bytes;
            for (uint32_t each = 0; each < size; each += 7)
                hash = (hash ^ bytes[at + each]) * 0x100000001B3ULL;
            for (int copies = chance(doubled) ? 2 : 1; copies; copies--) {
                int to = at_end == HUB ? pair_of(output.flow) : HUB;
                int64_t out_ns = passed_ns(to == HUB, size, now_ns);
                if (out_ns < 0 || chance(loss[output.path]))
                    continue;
                struct flying *packet = malloc(sizeof *packet);
                *packet = (struct flying){out_ns + delay_ns[output.path] + (int64_t)below((uint64_t)jitter_ns + 1),
                                          order++, to, output.tos, size, malloc(size)};
                memcpy(packet->data, bytes + at, size);
                if (chance(forged))
                    forge(packet->data);
                if (chance(corrupted))
                    packet->data[below(size)] ^= (uint8_t)(1 << below(8));
                launch(packet);
            }
        }
}

static void invent(struct exchange *exchange, int number, bool has_mercy, bool is_at_once)
{
    static const uint8_t sizes[] = {0, 4, 2, 2, 8, 1, 2, 4, 8, 1};
    static const uint64_t most[] = {3, 2000, 20000, MOST_BYTES};
    uint8_t type = (uint8_t)(1 + below(9));
    uint64_t elements = 1 + below(most[below(4)] / sizes[type] + 1);
    exchange->bytes = elements * sizes[type];
    exchange->source = malloc(exchange->bytes);
    exchange->target = malloc(exchange->bytes + 2 * GUARD_BYTES);
    for (size_t at = 0; at < exchange->bytes; at++)
        exchange->source[at] = (uint8_t)(draw() | 1); /* no zeros, which stand for what is missing */
    memset(exchange->target, 0xA5, exchange->bytes + 2 * GUARD_BYTES);
    exchange->pair = 1 + number % pairs;
    bool is_to_hub = chance(pairs > 1 ? 0.8 : 0.5);
    exchange->ends[0] = is_to_hub ? exchange->pair : HUB;
    exchange->ends[1] = is_to_hub ? HUB : exchange->pair;
    exchange->send_at_ns = (int64_t)below(20) * MILLISECOND;
    exchange->receive_at_ns = (int64_t)below(20) * MILLISECOND;
    exchange->send = (struct mlt_send){
        .elements = exchange->source, .element_count = elements, .tensor = (uint32_t)number, .round = (uint32_t)below(3),
        .element_type = type, .importance = (uint8_t)below(3), .tos_important = 0x42, .tos_unimportant = 0x40,
        .burst_packets = (uint16_t)below(20), .priority = (int32_t)below(3), .seed = draw(),
        .deadline_ns = has_mercy ? 60 * SECOND : (int64_t)(1 + below(4)) * SECOND, .moment = (uint8_t)below(3)};
    if (!has_mercy)
        exchange->send.moment = MLT_FROM_POST;
    exchange->receive = (struct mlt_receive){
        .elements = exchange->target + GUARD_BYTES, .element_count = elements, .tensor = (uint32_t)number,
        .round = exchange->send.round, .element_type = type,
        .policy = {.loss_bound = chance(0.5) ? 0 : 0.1, .important_bound = chance(0.5) ? 1 : 0.01,
                   .soft_ns = chance(0.3) ? (int64_t)below(100) * MILLISECOND : 0,
                   .hard_ns = has_mercy ? 60 * SECOND : (int64_t)(1 + below(4)) * SECOND,
                   .stop_rule = (uint8_t)below(2), .at_hard_time = has_mercy ? MLT_FAIL : (uint8_t)below(2)}};
    if (!is_at_once)
        return;
    if (chance(0.3))
        exchange->send.importance = MLT_EDGES;
    if (chance(0.7)) {
        struct mlt_policy *policy = &exchange->receive.policy;
        policy->stop_rule = MLT_GATHERED;
        policy->important_bound = 0;
        policy->gather = (struct mlt_gather){.number = below(3), .percentage = 0.9,
                                             .lt_ns = chance(0.2) ? MLT_LT_REGISTERED : (int64_t)below(30) * MILLISECOND,
                                             .slack_ns = (int64_t)below(30) * MILLISECOND};
    }
}

static void check(const struct exchange *exchange, bool has_mercy)
{
    const struct mlt_result *sent = &exchange->results[0], *got = &exchange->results[1];
    for (int at = 0; at < GUARD_BYTES; at++)
        if (exchange->target[at] != 0xA5 || exchange->target[GUARD_BYTES + exchange->bytes + (size_t)at] != 0xA5)
            broken("a byte outside of the tensor was written");
    if (has_mercy && (sent->status || got->status)) {
        printf("%d %s, %d %s\n", sent->status, sent->text, got->status, got->text);
        broken("a transfer failed on a network that loses a fifth or less");
    }
    if (got->status)
        return;
    size_t packet_bytes = (size_t)got->elements_per_packet * (exchange->bytes / exchange->send.element_count);
    uint32_t missing = 0, missing_important = 0;
    for (size_t at = 0; at < exchange->bytes; at++) {
        uint32_t packet = (uint32_t)(at / packet_bytes);
        bool is_there = got->arrived[packet >> 3] >> (packet & 7) & 1;
        if (exchange->target[GUARD_BYTES + at] != (is_there ? exchange->source[at] : 0))
            broken("wrong bytes");
        missing += !is_there && at % packet_bytes == 0;
        if (has_mercy && at % packet_bytes == 0 && is_there != (sent->arrived[packet >> 3] >> (packet & 7) & 1))
            broken("the sender was told another bitmap");
    }
    missing_important = got->important_packets - got->arrived_important;
    const struct mlt_policy *policy = &exchange->receive.policy;
    if (missing != got->packets - got->arrived_packets)
        broken("counts differ from the bitmap");
    if (policy->at_hard_time == MLT_TAKE)
        return;
    if (missing > policy->loss_bound * got->packets + 1e-6)
        broken("more is missing than the bound allows");
    if (missing && policy->important_bound < 1
        && missing_important > policy->important_bound * got->important_packets + 1e-6)
        broken("more important packets are missing than the bound allows");
    if (policy->stop_rule == MLT_GATHERED && missing && !policy->soft_ns) {
        bool is_early = got->ending != MLT_AT_PERCENTAGE && got->ending != MLT_AT_DEADLINE;
        if (is_early)
            broken("a receive has ended early for no reason");
        bool is_time_up = got->ended_ns - got->posted_ns >= policy->hard_ns;
        if (!policy->gather.number && !is_time_up && (!got->lt_ns || got->ended_ns - got->first_ns < got->lt_ns))
            broken("a receive has ended before its LT");
    }
}

static uint64_t scenario(uint64_t seed, uint64_t *succeeded)
{
    struct exchange exchanges[MOST_TRANSFERS] = {0};
    struct mlt *handles[MOST_PEERS + 1];
    seed_now = seed;
    state = seed * 0x9E3779B97F4A7C15ULL | 1;
    for (int warm = 0; warm < 8; warm++)
        draw();
    hash = 0xCBF29CE484222325ULL;
    flying_count = 0;
    pairs = chance(0.3) ? 2 + (int)below(MOST_PEERS - 1) : 1;
    int paths = 1 + (int)below(PATHS), count = pairs > 1 ? pairs + (int)below(4) : 1 + (int)below(8);
    link_bps = chance(0.5) ? 1e8 : 0;
    buffer_ns = (int64_t)(1 + below(20)) * MILLISECOND;
    link_free_ns[0] = link_free_ns[1] = 0;
    static const double losses[] = {0, 0, 0.01, 0.05, 0.2, 0.6};
    double base = losses[below(6)];
    bool has_dead_path = paths > 1 && chance(0.2), has_keys = chance(0.6);
    for (int path = 0; path < PATHS; path++) {
        loss[path] = base;
        delay_ns[path] = (int64_t)(1 + below(1000)) * 1000 * (chance(0.1) ? 20 : 1);
    }
    if (has_dead_path)
        loss[below((uint64_t)paths)] = 1;
    bool has_mercy = base <= 0.2;
    doubled = chance(0.2) ? 0.05 : 0;
    corrupted = has_keys && chance(0.3) ? 0.03 : 0;
    bool is_at_once = chance(0.5), has_credit = chance(0.6);
    forged = has_credit && chance(0.3) ? 0.05 : 0;
    jitter_ns = chance(0.5) ? 0 : (int64_t)below(2000) * 1000;
    uint32_t datagram_bytes = chance(0.5) ? 1472 : (uint32_t)(256 + below(8700));
    for (int at = HUB; at <= pairs; at++) {
        struct mlt_options options = {.seed = seed * (MOST_PEERS + 1) + (uint64_t)at + 1, .now_ns = SECOND};
        handles[at] = mlt_create(&options);
        if (at != HUB && (mlt_reserve(handles[HUB], &tokens[at][0]) || mlt_reserve(handles[at], &tokens[at][1])))
            broken("reserve");
    }
    for (int each = 0; each < 2 * pairs; each++) {
        int pair = 1 + each / 2, end = each % 2;
        struct mlt_path table[PATHS] = {0};
        struct mlt_flow_options options = {.peer_token = tokens[pair][1 - end], .send_datagram_bytes = datagram_bytes,
                                           .receive_datagram_bytes = datagram_bytes, .has_keys = has_keys,
                                           .spray_random = (uint8_t)(seed & 1),
                                           .repair = is_at_once ? MLT_AT_ONCE : MLT_IN_PASSES, .has_credit = has_credit,
                                           .rate = {.cap_bps = chance(0.5) ? 1e9 : 0,
                                                    .kind = has_credit ? MLT_CREDIT : chance(0.3) ? MLT_BBR : MLT_TIMELY}};
        memset(options.send_key, 'a' + end, sizeof options.send_key);
        memset(options.receive_key, 'b' - end, sizeof options.receive_key);
        for (int path = 0; path < paths; path++)
            table[path] = (struct mlt_path){.socket = path, .weight = (uint16_t)(1 + below(4))};
        if (mlt_open(handles[end ? pair : HUB], tokens[pair][end], &options, table, paths))
            broken("open");
    }
    int64_t now_ns = SECOND, end_ns = SECOND + 70 * SECOND;
    for (int each = 0; each < count; each++) {
        invent(&exchanges[each], each, has_mercy, is_at_once);
        exchanges[each].send.flow = tokens[exchanges[each].pair][exchanges[each].ends[0] != HUB];
        exchanges[each].receive.flow = tokens[exchanges[each].pair][exchanges[each].ends[1] != HUB];
    }
    for (int open = 2 * count; open;) {
        int64_t next_ns = INT64_MAX;
        for (int each = 0; each < count; each++) {
            struct exchange *exchange = &exchanges[each];
            for (int side = 0; side < 2; side++) {
                int64_t at_ns = SECOND + (side ? exchange->receive_at_ns : exchange->send_at_ns);
                struct mlt *handle = handles[exchange->ends[side]];
                if (!exchange->is_posted[side] && at_ns <= now_ns) {
                    exchange->is_posted[side] = true;
                    if (side ? mlt_post_receives(handle, &exchange->receive, 1, &exchange->ids[1])
                             : mlt_post_sends(handle, &exchange->send, 1, &exchange->ids[0]))
                        broken("post");
                }
                if (!exchange->is_posted[side] && at_ns < next_ns)
                    next_ns = at_ns;
                if (exchange->is_posted[side] && !exchange->is_done[side]
                    && mlt_wait(handle, exchange->ids[side], 0, &exchange->results[side]) == MLT_OK) {
                    exchange->is_done[side] = true;
                    open--;
                }
            }
        }
        for (int at = HUB; at <= pairs; at++) {
            mlt_step(handles[at], now_ns);
            carry(handles[at], at, now_ns);
            int64_t timer_ns = mlt_next_timer(handles[at]);
            if (timer_ns < next_ns)
                next_ns = timer_ns;
        }
        if (flying_count && heap[0]->at_ns < next_ns)
            next_ns = heap[0]->at_ns;
        if (open && next_ns == INT64_MAX)
            broken("a transfer is open and nothing is due");
        if (now_ns > end_ns)
            broken("a transfer is open behind all deadlines");
        now_ns = next_ns > now_ns && open ? next_ns : now_ns;
        while (flying_count && heap[0]->at_ns <= now_ns) {
            struct flying *packet = land();
            mlt_feed(handles[packet->to], packet->data, packet->bytes, packet->bytes, packet->tos, packet->at_ns);
            free(packet->data);
            free(packet);
        }
    }
    for (int each = 0; each < count; each++) {
        check(&exchanges[each], has_mercy);
        *succeeded += !exchanges[each].results[1].status;
        for (int side = 0; side < 2; side++)
            mlt_release(handles[exchanges[each].ends[side]], exchanges[each].ids[side]);
        free(exchanges[each].source);
        free(exchanges[each].target);
    }
    while (flying_count) {
        struct flying *packet = land();
        free(packet->data);
        free(packet);
    }
    for (int each = 0; each < 2 * pairs; each++) {
        struct mlt_flow_statistics statistics;
        if (mlt_flow_statistics(handles[each % 2 ? 1 + each / 2 : HUB], tokens[1 + each / 2][each % 2], &statistics))
            broken("statistics");
        if ((statistics.ungranted || statistics.overgranted) && (has_keys || forged <= 0))
            broken("a packet without credit, or credit without measure");
    }
    for (int at = HUB; at <= pairs; at++)
        mlt_destroy(handles[at]);
    return hash;
}

int main(int count, char **words)
{
    uint64_t first = count > 1 ? strtoull(words[1], NULL, 10) : 1, scenarios = count > 2 ? strtoull(words[2], NULL, 10) : 1000;
    uint64_t succeeded = 0;
    for (uint64_t seed = first; seed < first + scenarios; seed++) {
        uint64_t once = scenario(seed, &succeeded);
        if (seed % 16 == 0 && scenario(seed, &succeeded) != once)
            broken("the same seed made other packets");
    }
    printf("%lu scenarios, %lu transfers succeeded\n", scenarios, succeeded);
    return 0;
}
