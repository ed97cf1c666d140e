/* What a flow that repairs at once sends next (LTP, section IV-B): its critical packets, then the normal ones, each once,
 * and what was found to be lost.
 *
 * A lost critical packet is a critical one again; a lost normal one waits until nothing new of its tensor is left, but
 * not for tensors behind it: a flow that is given tensor after tensor never runs out of new packets. Front layers come
 * first; lost packets of a tensor leave in the order in which they were found.
 */
#include "internal.h"

static const double TOLD_AGAIN = 0.1; /* a change by such a share */

/* All of its critical packets, or all packets, have left once. */
static void end_phase(struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    link_remove(&transfer->sending);
    if (transfer->pass.phase == 1)
        return;
    transfer->pass.phase = 1;
    transfer->pass.step = transfer->pass.burst_count = transfer->pass.burst_next = 0;
    entry_say(flow, transfer->entry, SAY_REGISTER); /* how many are critical is known now */
    send_join(&flow->sending, transfer);
}

/* A burst of the first transfer that has new packets of this kind; false: none has. */
static bool peek_new(const struct link *list, struct at_hand *hand)
{
    while (link_is_in(list)) {
        struct transfer *transfer = list->next->owner;
        const struct pass *pass = &transfer->pass;
        if (pass->burst_next < pass->burst_count || pass_window(transfer)) {
            send_peek(transfer, hand);
            return true;
        }
        end_phase(transfer);
    }
    return false;
}

static void pop(struct transfer *transfer, enum packet_kind kind)
{
    struct lost *lost = &transfer->lost[kind];
    uint32_t packet = lost->first;
    transfer->is_lost[packet >> 3] = (uint8_t)(transfer->is_lost[packet >> 3] & ~(1 << (packet & 7)));
    lost->first = transfer->left[packet];
    transfer->left[packet] = 0;
    if (--lost->count == 0)
        link_remove(&lost->link);
}

/* Of this kind, the foremost layer's that has nothing new to send, unless new packets of another go before. */
static struct transfer *next_lost(const struct flow *flow, enum packet_kind kind)
{
    const struct transfer *sending = kind == NORMAL && link_is_in(&flow->sending) ? flow->sending.next->owner : NULL;
    struct transfer *first = NULL;
    for (const struct link *at = flow->lost[kind].next; at != &flow->lost[kind]; at = at->next) {
        struct transfer *transfer = at->owner;
        bool has_new = kind == NORMAL && link_is_in(&transfer->sending);
        bool is_behind = sending && transfer->send.priority > sending->send.priority;
        if (!has_new && !is_behind && (!first || transfer->send.priority < first->send.priority))
            first = transfer;
    }
    return first;
}

static bool peek_lost(const struct flow *flow, enum packet_kind kind, struct at_hand *hand)
{
    struct transfer *transfer;
    while ((transfer = next_lost(flow, kind))) {
        const struct lost *lost = &transfer->lost[kind];
        if (bit_is_set(transfer->arrived, lost->first)) { /* it was only late */
            pop(transfer, kind);
            continue;
        }
        uint32_t most = burst_packets(transfer);
        *hand = (struct at_hand){.transfer = transfer, .is_important = kind == CRITICAL, .is_repair = true};
        for (uint32_t packet = lost->first;
             hand->count < most && hand->count < lost->count && !bit_is_set(transfer->arrived, packet);
             packet = transfer->left[packet])
            hand->packets[hand->count++] = packet;
        return true;
    }
    return false;
}

bool queues_peek(struct flow *flow, struct at_hand *hand)
{
    return peek_new(&flow->critical, hand) || peek_lost(flow, CRITICAL, hand) || peek_lost(flow, NORMAL, hand)
        || peek_new(&flow->sending, hand) || peek_lost(flow, NORMAL, hand);
}

void queues_taken(const struct at_hand *hand)
{
    if (!hand->is_repair) {
        send_took(hand);
        return;
    }
    for (uint32_t number = 0; number < hand->count; number++)
        pop(hand->transfer, hand->is_important ? CRITICAL : NORMAL);
}

void queues_lost(struct transfer *transfer, uint32_t packet)
{
    enum packet_kind kind = bit_is_set(transfer->important, packet) ? CRITICAL : NORMAL;
    struct lost *lost = &transfer->lost[kind];
    bit_set(transfer->is_lost, packet);
    transfer->left[packet] = 0;
    if (lost->count++)
        transfer->left[lost->last] = packet;
    else
        lost->first = packet;
    lost->last = packet;
    link_append(&transfer->flow->lost[kind], &lost->link);
}

void queues_leave(struct transfer *transfer)
{
    for (int kind = NORMAL; kind <= CRITICAL; kind++)
        link_remove(&transfer->lost[kind].link);
}

static bool has_changed(double now, double told)
{
    return now > told * (1 + TOLD_AGAIN) || now < told * (1 - TOLD_AGAIN);
}

void queues_told(struct flow *flow)
{
    const struct controller *controller = &flow->controller;
    bool is_modelled = controller->options.kind == MLT_BBR || controller->options.kind == MLT_CREDIT;
    double bps = is_modelled ? controller->bbr.bandwidth_bps : controller->rate_bps;
    int64_t rtt_ns = controller->base_rtt_ns;
    if (!rtt_ns || bps < 1
        || !(has_changed((double)rtt_ns, (double)flow->told_rtt_ns) || has_changed(bps, flow->told_bps)))
        return;
    flow->told_rtt_ns = rtt_ns;
    flow->told_bps = bps;
    if (!link_is_in(&flow->sending))
        return; /* the next transfer tells it */
    const struct transfer *first = flow->sending.next->owner;
    entry_say(flow, first->entry, SAY_REGISTER);
}
