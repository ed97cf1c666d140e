/* Which packets are lost: bursts that have left, in their order, and what acknowledgements name of them.
 *
 * A packet is lost when enough packets (three, LTP section IV-B) that left later on the same path, in another burst, are
 * named; or when for two round trips nothing is named at all (the tail, which nothing follows; RFC 8985, section 7). A
 * packet that is named after all, before its repair can have been, was only late: then more proof is asked.
 */
#include <stdlib.h>

#include "internal.h"

enum {
    FIRST_ROOM = 64,
    LEAST_REORDERING = 3,
    MOST_REORDERING = 64,
    MOST_DOUBLINGS = 6,
    CALM_ROUND_TRIPS = 16, /* without a late packet: three are enough again (RFC 8985, section 6.2) */
    NUMBER_BITS = 25,
    NUMBER_MASK = (1 << NUMBER_BITS) - 1,
};
static const uint32_t HAS_LEFT = (uint32_t)1 << 31;
static const int64_t SLACK_NS = MILLISECOND;
static const int64_t FIRST_TAIL_NS = 100 * MILLISECOND; /* while no round trip is known */

bool departures_open(struct flow *flow)
{
    flow->reordering = LEAST_REORDERING;
    if (!repairs_at_once(flow))
        return true;
    for (int path = 0; path < flow->path_count; path++) {
        struct departures *departures = &flow->paths[path].departures;
        departures->ring = malloc(FIRST_ROOM * sizeof *departures->ring);
        departures->room = FIRST_ROOM;
        departures->next = 1;
        if (!departures->ring)
            return false;
    }
    return true;
}

void departures_free(struct flow *flow)
{
    for (int path = 0; path < flow->path_count; path++)
        free(flow->paths[path].departures.ring);
}

static struct departure *numbered(const struct departures *departures, uint32_t number)
{
    return &departures->ring[number % departures->room];
}

static struct departure *oldest(const struct departures *departures)
{
    return numbered(departures, departures->next - departures->count);
}

static int64_t patience_ns(const struct flow *flow)
{
    int64_t rtt_ns = flow_rtt(flow);
    uint32_t doublings = flow->tail_doublings < MOST_DOUBLINGS ? flow->tail_doublings : MOST_DOUBLINGS;
    return (rtt_ns ? 2 * rtt_ns + SLACK_NS + flow->options.ack_delay_ns : FIRST_TAIL_NS) << doublings;
}

/* Since when nothing has been heard of what is on its way on a path; NEVER: nothing is. */
static int64_t silent_since_ns(const struct departures *departures)
{
    if (!departures->count)
        return NEVER;
    int64_t left_ns = oldest(departures)->left_ns;
    return left_ns > departures->news_ns ? left_ns : departures->news_ns;
}

static void set_timer(struct flow *flow)
{
    int64_t since_ns = NEVER;
    for (int path = 0; path < flow->path_count; path++) {
        int64_t path_ns = silent_since_ns(&flow->paths[path].departures);
        since_ns = path_ns < since_ns ? path_ns : since_ns;
    }
    timer_set(flow->core, &flow->timers[TIMER_TAIL], since_ns == NEVER ? NEVER : since_ns + patience_ns(flow));
}

static uint32_t place_of(int path, uint32_t number)
{
    return HAS_LEFT | (uint32_t)path << NUMBER_BITS | (number & NUMBER_MASK);
}

/* The oldest one of a path is over: what of it was not named is lost. */
static void resolve(struct flow *flow, int path)
{
    struct departures *departures = &flow->paths[path].departures;
    struct departure *departure = oldest(departures);
    struct transfer *transfer = departure->transfer;
    uint32_t place = place_of(path, departures->next - departures->count);
    departures->proofs -= departure->proofs;
    departures->count--;
    path_gone(flow, (uint64_t)(departure->count - departure->named) * departure->packet_bytes);
    if (!transfer || departure->named == departure->count)
        return;
    for (uint32_t number = 0; number < departure->count; number++) {
        uint32_t packet = departure->packets[number];
        if (!bit_is_set(transfer->arrived, packet) && !bit_is_set(transfer->is_lost, packet)
            && transfer->left[packet] == place)
            queues_lost(transfer, packet);
    }
    flow_activate(flow);
}

/* Room for one more; the numbers of those that are there stay. */
static void grow(struct departures *departures)
{
    uint32_t room = 2 * departures->room;
    struct departure *ring = room <= MOST_DEPARTURES ? malloc(room * sizeof *ring) : NULL;
    if (!ring)
        return;
    for (uint32_t number = departures->next - departures->count; number != departures->next; number++)
        ring[number % room] = *numbered(departures, number);
    free(departures->ring);
    departures->ring = ring;
    departures->room = room;
}

void departures_add(struct flow *flow, int path, const struct at_hand *hand)
{
    struct departures *departures = &flow->paths[path].departures;
    if (departures->count == departures->room)
        grow(departures);
    if (departures->count == departures->room)
        resolve(flow, path);
    uint32_t number = departures->next++;
    struct departure *departure = numbered(departures, number);
    departures->count++;
    *departure = (struct departure){.left_ns = flow->core->now_ns, .transfer = hand->transfer,
                                    .count = (uint8_t)hand->count, .is_repair = hand->is_repair,
                                    .packet_bytes = HEADER_BYTES + hand->transfer->layout.full_bytes};
    flow->in_flight_bytes += (uint64_t)departure->count * departure->packet_bytes;
    for (uint32_t each = 0; each < hand->count; each++) {
        departure->packets[each] = hand->packets[each];
        hand->transfer->left[hand->packets[each]] = place_of(path, number);
    }
    if (flow->timers[TIMER_TAIL].place < 0)
        set_timer(flow);
}

/* It arrived though it, or its repair, was believed to be lost. */
static void was_late(struct flow *flow)
{
    int64_t now_ns = flow->core->now_ns;
    if (now_ns - flow->late_ns < flow_rtt(flow))
        return; /* of the same round trip */
    flow->late_ns = now_ns;
    flow->reordering += flow->reordering < MOST_REORDERING;
}

/* The peer says for the first time that it has this packet. */
void departures_named(struct transfer *transfer, uint32_t packet)
{
    struct flow *flow = transfer->flow;
    int64_t now_ns = flow->core->now_ns;
    flow->tail_doublings = 0;
    if (bit_is_set(transfer->is_lost, packet)) {
        was_late(flow);
        return;
    }
    struct path *path = &flow->paths[(transfer->left[packet] & ~HAS_LEFT) >> NUMBER_BITS];
    struct departures *departures = &path->departures;
    departures->news_ns = now_ns;
    uint32_t behind = (departures->next - transfer->left[packet]) & NUMBER_MASK;
    if (behind > departures->count)
        return;
    struct departure *departure = numbered(departures, departures->next - behind);
    departure->named++;
    path_gone(flow, departure->packet_bytes);
    if (departure->is_repair && now_ns - departure->left_ns < path->least_rtt_ns) {
        flow->statistics.needless_packets++;
        transfer->result.needless_packets++;
        was_late(flow);
        return;
    }
    departure->proofs++;
    departures->proofs++;
}

/* Nothing more is asked of it. */
static bool is_settled(const struct departure *departure)
{
    return !departure->transfer || departure->named == departure->count;
}

void departures_look(struct flow *flow)
{
    if (flow->core->now_ns - flow->late_ns > CALM_ROUND_TRIPS * flow_rtt(flow))
        flow->reordering = LEAST_REORDERING;
    for (int path = 0; path < flow->path_count; path++) {
        struct departures *departures = &flow->paths[path].departures;
        while (departures->count) {
            const struct departure *departure = oldest(departures);
            if (!is_settled(departure) && departures->proofs - departure->proofs < flow->reordering)
                break;
            resolve(flow, path);
        }
    }
    set_timer(flow);
}

/* Nothing was named for too long: what is on its way on such a path is lost, and no longer in the window's way. */
void departures_tail(struct flow *flow)
{
    int64_t now_ns = flow->core->now_ns, patience = patience_ns(flow);
    bool is_late = false;
    for (int path = 0; path < flow->path_count; path++) {
        struct departures *departures = &flow->paths[path].departures;
        if (!departures->count || now_ns - silent_since_ns(departures) < patience)
            continue;
        while (departures->count && now_ns - oldest(departures)->left_ns >= patience)
            resolve(flow, path);
        departures->news_ns = now_ns;
        is_late = true;
    }
    flow->tail_doublings += is_late;
    flow_activate(flow);
    set_timer(flow);
}

void departures_give_up(struct flow *flow, struct path *path)
{
    while (path->departures.count)
        resolve(flow, (int)(path - flow->paths));
    set_timer(flow);
}

void departures_forget(const struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    for (int path = 0; path < flow->path_count; path++) {
        struct departures *departures = &flow->paths[path].departures;
        for (uint32_t number = departures->next - departures->count; number != departures->next; number++)
            if (numbered(departures, number)->transfer == transfer)
                numbered(departures, number)->transfer = NULL; /* it is still on its way */
        while (departures->count && is_settled(oldest(departures)))
            resolve(flow, path);
    }
    flow_activate(flow);
    set_timer(flow);
}
