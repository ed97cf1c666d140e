/* Sends: a tensor's passes, burst by burst, as rate, window and the kernel allow.
 *
 * A send waits for the peer's READY, sends everything once, ends the pass with markers and a STATUS REQUEST, sends what
 * the peer's BITMAP lacks, and so on until STOP. Where repairs are made at once, queues.c says which burst is the next.
 */
#include <stdio.h>

#include "internal.h"

enum {
    BITS = 8,
    LUMP_NS = 50 * MICROSECOND, /* credit that is waited for: waking up for every packet costs more than it is worth */
    LEAST_LINGER_NS = 200 * MICROSECOND,
    SMALL_PACKETS = 16,
    LEAST_LUMP_BYTES = 1500,
    DEPTH_LUMPS = 4, /* that may leave at once after a pause */
};

/* Behind all others of its priority, which mostly are the last ones. */
void send_join(struct link *list, struct transfer *transfer)
{
    struct link *before = list->previous;
    while (before != list && ((struct transfer *)before->owner)->send.priority > transfer->send.priority)
        before = before->previous;
    link_append(before->next, &transfer->sending);
    flow_activate(transfer->flow);
}

/* Before the first of a flow's sends joins. */
static void wake(struct flow *flow)
{
    if (!flow_has_data(flow) && !flow->in_flight_bytes)
        flow->controller.law->on_wake(&flow->controller, flow->core->now_ns);
}

static void set_deadline(struct transfer *transfer, int64_t since_ns)
{
    transfer->deadline_ns = transfer->send.deadline_ns ? since_ns + transfer->send.deadline_ns : NEVER;
    timer_set(transfer->flow->core, &transfer->timer, transfer->deadline_ns);
}

void send_begin(struct transfer *transfer)
{
    struct entry *entry = transfer->entry;
    transfer->stage = WAITS_FOR_READY;
    transfer->deadline_ns = NEVER;
    if (transfer->send.moment == MLT_FROM_POST)
        set_deadline(transfer, transfer->flow->core->now_ns);
    if (entry->is_offer)
        send_ready(transfer);
}

/* The peer has posted the receive: its offer is in the entry. */
void send_all_important(struct transfer *transfer)
{
    transfer->send.importance = MLT_ALL_IMPORTANT;
    memset(transfer->important, 0xFF, ((size_t)transfer->layout.packets + 7) / 8);
}

void send_ready(struct transfer *transfer)
{
    struct entry *entry = transfer->entry;
    int64_t now_ns = transfer->flow->core->now_ns;
    entry->is_offer = false;
    transfer->flow->offers--;
    transfer->result.ready_ns = now_ns;
    transfer->not_before = transfer->flow->received_stamp; /* what was said of the tensor until then is of another one */
    if (entry->offer_type != transfer->layout.element_type || entry->offer_elements != transfer->layout.elements) {
        transfer_cancel(transfer, MLT_MISMATCH, "the ends name different element types or counts");
        return;
    }
    if (transfer->send.moment != MLT_FROM_POST)
        set_deadline(transfer, now_ns);
    /* What must arrive must not be dropped first, also where the bound is less than one packet. */
    bool is_whole = !entry->offer_takes_rest && (uint64_t)entry->offer_loss * transfer->layout.packets < MILLION;
    if (is_whole && transfer->send.important_if_whole)
        send_all_important(transfer);
    transfer->stage = SENDS;
    pass_begin(transfer, 1);
    wake(transfer->flow);
    send_join(transfer->left ? &transfer->flow->critical : &transfer->flow->sending, transfer);
}

/* The peer's bitmap has come. */
void send_again(struct transfer *transfer)
{
    transfer->stage = SENDS;
    pass_begin(transfer, transfer->pass.attempt + 1);
    wake(transfer->flow);
    send_join(&transfer->flow->sending, transfer);
}

/* Of a small tensor the STOP mostly comes at once, and then nothing more need be said. */
static void end_pass_later(struct transfer *transfer)
{
    struct mlt *core = transfer->flow->core;
    int64_t rtt_ns = flow_rtt(transfer->flow);
    int64_t at_ns = core->now_ns + (rtt_ns > LEAST_LINGER_NS ? rtt_ns : LEAST_LINGER_NS);
    link_remove(&transfer->sending);
    transfer->stage = LINGERS;
    timer_set(core, &transfer->timer, at_ns < transfer->deadline_ns ? at_ns : transfer->deadline_ns);
}

void send_end_pass(struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    link_remove(&transfer->sending);
    timer_set(flow->core, &transfer->timer, transfer->deadline_ns);
    transfer->stage = WAITS_FOR_BITMAP;
    transfer->bitmap_next = 0;
    for (int path = 0; path < flow->path_count; path++)
        if (transfer->pass.used_paths >> path & 1)
            path_probe(flow, path, transfer, transfer->pass.attempt, transfer->send.tos_important);
    entry_say(flow, transfer->entry, SAY_STATUS_REQUEST);
}

/* Writes a packet's header and tag into the batch; the two parts before the body are the caller's. */
static void put_packet(const struct at_hand *hand, uint32_t packet, int path, bool is_joined)
{
    const struct transfer *transfer = hand->transfer;
    struct flow *flow = transfer->flow;
    struct batch *batch = &flow->core->batch;
    const struct layout *layout = &transfer->layout;
    uint8_t *header = batch->slots[batch->packets] + TAG_BYTES;
    uint32_t bytes = layout_bytes(layout, packet);
    bool has_keys = flow->options.has_keys;
    header[VERSION_OFFSET] = WIRE_VERSION;
    header[KIND_OFFSET] = KIND_DATA;
    header[FLAGS_OFFSET] = (uint8_t)((hand->is_important ? FLAG_IMPORTANT : 0)
                                     | (packet == layout->packets - 1 ? FLAG_LAST : 0)
                                     | (hand->is_repair ? FLAG_RETRANSMISSION : 0)
                                     | (has_keys ? FLAG_AUTHENTICATED : 0));
    header[ELEMENT_TYPE_OFFSET] = layout->element_type;
    write64(header + TOKEN_OFFSET, flow->peer_token);
    write32(header + TENSOR_OFFSET, transfer->send.tensor);
    write32(header + ROUND_OFFSET, transfer->send.round);
    write16(header + LAYER_OFFSET, transfer->send.layer);
    write16(header + PATH_OFFSET, (uint16_t)path);
    write32(header + SEQUENCE_OFFSET, packet);
    write32(header + ELEMENT_OFFSET_OFFSET, packet * layout->elements_per_packet);
    if (flow->options.has_credit)
        write32(header + SPENT_OFFSET, credit_spend(flow, flow->overhead_bytes + bytes));
    write64(header + SENT_OFFSET, ++flow->stamp);
    struct iovec body = {transfer->memory + (size_t)packet * layout->full_bytes, bytes};
    if (is_joined && has_keys) /* behind the tag of the packet before */
        batch->parts[batch->part_count - 1].iov_len += HEADER_BYTES;
    else
        batch->parts[batch->part_count++] = (struct iovec){header, HEADER_BYTES};
    batch->parts[batch->part_count++] = body;
    batch->packets++;
    if (has_keys) {
        uint8_t *tag = batch->slots[batch->packets];
        flow_tag(&flow->send_gmac, flow->options.send_salt, header, (struct iovec[]){{header, HEADER_BYTES}, body}, 2,
                 tag);
        batch->parts[batch->part_count++] = (struct iovec){tag, TAG_BYTES};
    }
}

/* Returns the bytes of the burst on the wire. */
static int64_t put_burst(const struct at_hand *hand)
{
    struct transfer *transfer = hand->transfer;
    struct flow *flow = transfer->flow;
    struct mlt *core = flow->core;
    struct batch *batch = &core->batch;
    int path = path_choose(flow);
    uint32_t bytes = 0;
    uint8_t tos = hand->is_important ? transfer->send.tos_important : transfer->send.tos_unimportant;
    struct outgoing *message = NULL;
    if ((uint64_t)core->now_ns > flow->stamp)
        flow->stamp = (uint64_t)core->now_ns;
    for (uint32_t number = 0; number < hand->count; number++) {
        uint32_t packet = hand->packets[number];
        uint32_t datagram_bytes = flow->overhead_bytes + layout_bytes(&transfer->layout, packet);
        bool is_joined = message && flow->paths[path].can_join && core->now_ns >= flow->paths[path].join_ns;
        if (!is_joined) {
            message = &batch->messages[batch->count++];
            *message = (struct outgoing){.flow = flow, .owner = transfer, .path = (uint16_t)path, .tos = tos,
                                         .segment_bytes = datagram_bytes, .first_part = batch->part_count};
        }
        put_packet(hand, packet, path, is_joined);
        message->packets++;
        message->bytes += datagram_bytes;
        message->parts = batch->part_count - message->first_part;
        bytes += datagram_bytes;
    }
    batch->bytes += bytes;
    transfer->pass.used_paths |= (uint64_t)1 << path;
    path_sent(flow, path, flow->stamp, hand->count, bytes);
    if (transfer->left)
        departures_add(flow, path, hand);
    struct mlt_result *result = &transfer->result;
    if (!result->first_ns)
        result->first_ns = core->now_ns;
    result->last_ns = core->now_ns;
    if (transfer->layout.packets > transfer->pass.window_packets)
        core->bulk_ns = core->now_ns;
    result->sent_packets += hand->count;
    result->sent_bytes += bytes;
    result->resent_packets += hand->is_repair ? hand->count : 0;
    result->by_path[path] += hand->count;
    return bytes + (int64_t)hand->count * WIRE_OVERHEAD_BYTES;
}

/* The window's next burst. */
void send_peek(struct transfer *transfer, struct at_hand *hand)
{
    const struct pass *pass = &transfer->pass;
    const struct burst *burst = &pass->bursts[pass->burst_next];
    hand->transfer = transfer;
    hand->count = burst->count;
    hand->is_important = burst->is_important;
    hand->is_repair = pass->attempt > 1;
    for (uint32_t number = 0; number < burst->count; number++)
        hand->packets[number] = pass->base + pass->order[burst->first + number];
}

/* The burst at hand has left, or its first packets. */
void send_took(const struct at_hand *hand)
{
    struct pass *pass = &hand->transfer->pass;
    struct burst *burst = &pass->bursts[pass->burst_next];
    burst->first = (uint8_t)(burst->first + hand->count);
    burst->count = (uint8_t)(burst->count - hand->count);
    pass->burst_next += !burst->count;
}

/* The next burst of the flow's first transfer, ends of passes on the way; false: nothing to send any more. */
static bool peek(struct flow *flow, struct at_hand *hand)
{
    while (link_is_in(&flow->sending)) {
        struct transfer *transfer = flow->sending.next->owner;
        const struct pass *pass = &transfer->pass;
        if (pass->burst_next < pass->burst_count || pass_window(transfer)) {
            send_peek(transfer, hand);
            return true;
        }
        if (pass->attempt == 1 && transfer->layout.packets <= SMALL_PACKETS) {
            end_pass_later(transfer);
            continue;
        }
        if (!batch_has_room(flow->core, MLT_MOST_PATHS, 0))
            return false;
        send_end_pass(transfer);
    }
    return false;
}

static double lump_bytes(const struct flow *flow)
{
    double bytes = flow->controller.rate_bps / BITS / (double)SECOND * LUMP_NS;
    return bytes < LEAST_LUMP_BYTES ? LEAST_LUMP_BYTES : bytes > MLT_WINDOW_BYTES ? MLT_WINDOW_BYTES : bytes;
}

static void refill(struct flow *flow)
{
    int64_t now_ns = flow->core->now_ns;
    flow->credit_bytes += flow->controller.rate_bps / BITS / (double)SECOND * (double)(now_ns - flow->credit_ns);
    double most_bytes = DEPTH_LUMPS * lump_bytes(flow);
    double depth_bytes = flow->controller.depth_bytes;
    if (repairs_at_once(flow) && depth_bytes > AT_ONCE_BYTES)
        depth_bytes = AT_ONCE_BYTES;
    if (most_bytes < depth_bytes)
        most_bytes = depth_bytes;
    if (flow->credit_bytes > most_bytes)
        flow->credit_bytes = most_bytes < MLT_WINDOW_BYTES ? most_bytes : MLT_WINDOW_BYTES;
    flow->credit_ns = now_ns;
}

static void wait_for_credit(struct flow *flow)
{
    double bytes_per_ns = flow->controller.rate_bps / BITS / (double)SECOND;
    int64_t wait_ns = (int64_t)((lump_bytes(flow) - flow->credit_bytes) / bytes_per_ns) + 1;
    timer_set(flow->core, &flow->timers[TIMER_PACE], flow->core->now_ns + wait_ns);
}

int64_t send_flow(struct flow *flow)
{
    struct at_hand hand;
    int64_t sent_bytes = 0;
    refill(flow);
    if (flow->timers[TIMER_PACE].place >= 0)
        return 0;
    while (sent_bytes < MLT_WINDOW_BYTES && flow_has_data(flow)) {
        if (!(repairs_at_once(flow) ? queues_peek(flow, &hand) : peek(flow, &hand)))
            return sent_bytes + flow_has_data(flow); /* with room for more markers it goes on */
        uint64_t burst_bytes = (uint64_t)hand.count * hand.transfer->layout.full_bytes;
        if (flow->credit_bytes <= 0) {
            wait_for_credit(flow);
            break;
        }
        if (flow->in_flight_bytes && (double)(flow->in_flight_bytes + burst_bytes) > flow->controller.window_bytes)
            break; /* until an acknowledgement, or a timeout of paths.c */
        if (!batch_has_room(flow->core, (int)hand.count + MLT_MOST_PATHS, burst_bytes))
            break;
        if (flow->options.has_credit && !credit_cut(flow, &hand))
            break;
        if (repairs_at_once(flow))
            queues_taken(&hand);
        else
            send_took(&hand);
        int64_t bytes = put_burst(&hand);
        flow->credit_bytes -= (double)bytes;
        sent_bytes += bytes;
    }
    return sent_bytes;
}
