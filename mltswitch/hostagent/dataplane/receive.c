/* What arrives: datagrams are checked, elements go where they belong, paths are answered.
 *
 * What a peer sent is compared before it is used. A datagram with a wrong token, tag, stamp or shape is counted and
 * changes nothing; elements are written for an open transfer only, where the sequence number and the length say.
 */
#include "internal.h"

enum {
    ECN_CE = 3,
    REPLY_BYTES = 24 << 10, /* of a path: acknowledged at once, however few packets they are */
    BULK_BYTES = 256 << 10, /* of a tensor, still to come: more is worth a nap */
    MOST_EXPECTED_BYTES = 2048, /* of a longer row the rest comes on its own */
    CACHE_LINE_BYTES = 64,
};
static const uint64_t REPLAY_NS = 2 * (uint64_t)1000000000; /* by the sender's clock: older stamps are replays */

/* One datagram, and what came with it. */
struct arrival {
    struct flow *flow;
    const uint8_t *bytes;
    uint32_t body_bytes; /* tag and header off */
    int path;
    uint8_t tos;
    uint64_t stamp;
    int64_t arrived_ns;
};

static bool has_right_tag(struct flow *flow, const uint8_t *bytes, uint32_t length)
{
    uint8_t tag[TAG_BYTES];
    flow_tag(&flow->receive_gmac, flow->options.receive_salt, bytes,
             &(struct iovec){(void *)(uintptr_t)bytes, length - TAG_BYTES}, 1, tag);
    return gmac_equal(tag, bytes + length - TAG_BYTES);
}

/* The flow whose datagram this is; null: nobody's. */
static struct flow *check(struct mlt *core, const uint8_t *bytes, uint32_t length, struct arrival *arrival)
{
    if (length < HEADER_BYTES || bytes[VERSION_OFFSET] != WIRE_VERSION) {
        core->counters.unknown_version++;
        return NULL;
    }
    uint64_t token = read64(bytes + TOKEN_OFFSET);
    struct flow *flow = token >> 48 < MLT_MOST_FLOWS ? core->flows[token >> 48] : NULL;
    if (!flow || flow->token ^ token) {
        core->counters.unknown_token++;
        return NULL;
    }
    bool has_tag = bytes[FLAGS_OFFSET] & FLAG_AUTHENTICATED;
    int path = read16(bytes + PATH_OFFSET);
    if (has_tag != flow->options.has_keys || length < flow->overhead_bytes
        || (has_tag && !has_right_tag(flow, bytes, length))) {
        flow->statistics.forged++;
        return NULL;
    }
    *arrival = (struct arrival){.flow = flow, .bytes = bytes, .body_bytes = length - flow->overhead_bytes, .path = path,
                                .tos = arrival->tos, .stamp = read64(bytes + SENT_OFFSET),
                                .arrived_ns = arrival->arrived_ns};
    if (arrival->stamp > flow->received_stamp)
        flow->received_stamp = arrival->stamp;
    flow->heard_ns = core->now_ns;
    return flow;
}

static void reply_now(struct flow *flow, int path)
{
    uint64_t bit = (uint64_t)1 << path;
    if (flow->reply_paths & bit)
        return;
    flow->reply_paths |= bit;
    flow_reply(flow);
}

/* Counts a packet of a path, and decides when the path is answered. Returns whether there is such a path. */
static bool count(const struct arrival *arrival, bool must_answer)
{
    struct flow *flow = arrival->flow;
    struct mlt *core = flow->core;
    if (arrival->path >= flow->path_count) {
        flow->statistics.refused++;
        return false;
    }
    struct path *path = &flow->paths[arrival->path];
    uint64_t bit = (uint64_t)1 << arrival->path;
    path->received++;
    path->received_marked += (arrival->tos & ECN_MASK) == ECN_CE;
    path->pending++;
    path->pending_bytes += arrival->body_bytes;
    flow->statistics.received_by_tos[arrival->tos]++;
    if (arrival->stamp > path->newest_stamp) {
        path->newest_stamp = arrival->stamp;
        path->newest_arrived_ns = arrival->arrived_ns;
    }
    if (must_answer || path->pending >= flow->options.ack_packets || path->pending_bytes >= REPLY_BYTES)
        reply_now(flow, arrival->path);
    else if (!flow->pending_paths && flow->timers[TIMER_REPLY].at_ns > core->now_ns + flow->options.ack_delay_ns)
        timer_set(core, &flow->timers[TIMER_REPLY], core->now_ns + flow->options.ack_delay_ns);
    flow->pending_paths |= bit;
    return true;
}

static struct transfer *transfer_of(const struct arrival *arrival)
{
    struct flow *flow = arrival->flow;
    uint32_t tensor = read32(arrival->bytes + TENSOR_OFFSET), round = read32(arrival->bytes + ROUND_OFFSET);
    struct entry *entry = flow->last_entry;
    if (!entry || entry->tensor != tensor || entry->round != round) {
        entry = entry_find(flow, tensor, round, false);
        if (entry)
            flow->last_entry = entry;
    }
    return entry && entry->transfer && entry->has_announced && arrival->stamp > entry->transfer->not_before
        ? entry->transfer
        : NULL;
}

/* The memory that the next datagram of the message will be copied to is fetched meanwhile. */
static void expect(const struct transfer *transfer, const uint8_t *datagram)
{
    uint32_t sequence = read32(datagram + SEQUENCE_OFFSET);
    if (sequence >= transfer->layout.packets - 1)
        return;
    const uint8_t *row = transfer->memory + (size_t)sequence * transfer->layout.full_bytes;
    uint32_t bytes = transfer->layout.full_bytes < MOST_EXPECTED_BYTES ? transfer->layout.full_bytes : MOST_EXPECTED_BYTES;
    for (uint32_t at = 0; at < bytes; at += CACHE_LINE_BYTES)
        __builtin_prefetch(row + at, 1, 2);
}

/* Whether the peer had credit for it. */
static bool heard(const struct arrival *arrival)
{
    uint32_t bytes = arrival->flow->overhead_bytes + arrival->body_bytes;
    bool is_marked = (arrival->tos & ECN_MASK) == ECN_CE, is_new = arrival->stamp + REPLAY_NS >= arrival->flow->received_stamp;
    uint32_t spent = read32(arrival->bytes + SPENT_OFFSET);
    return credit_heard(arrival->flow, spent, bytes, is_new, is_marked, arrival->arrived_ns);
}

/* Returns the transfer whose elements were taken in, or null. */
static struct transfer *take_data(const struct arrival *arrival)
{
    struct flow *flow = arrival->flow;
    const uint8_t *bytes = arrival->bytes;
    if (!count(arrival, false))
        return NULL;
    if (flow->options.has_credit && !heard(arrival)) {
        flow->statistics.refused++;
        return NULL;
    }
    struct transfer *transfer = transfer_of(arrival);
    uint32_t sequence = read32(bytes + SEQUENCE_OFFSET);
    const struct layout *layout = transfer ? &transfer->layout : NULL;
    if (!transfer || bytes[ELEMENT_TYPE_OFFSET] != layout->element_type || sequence >= layout->packets
        || (!flow->options.has_credit
            && read32(bytes + ELEMENT_OFFSET_OFFSET) != (uint32_t)(sequence * layout->elements_per_packet))
        || arrival->body_bytes != layout_bytes(layout, sequence)) {
        flow->statistics.refused++;
        return NULL;
    }
    struct mlt_result *result = &transfer->result;
    if (!result->first_ns) {
        transfer->layer = read16(bytes + LAYER_OFFSET);
        completion_begun(transfer);
    }
    result->received_packets++;
    result->received_bytes += arrival->body_bytes;
    result->marked_packets += (arrival->tos & ECN_MASK) == ECN_CE;
    result->by_path[arrival->path]++;
    if (repairs_at_once(flow) && names_note(transfer, sequence))
        reply_now(flow, arrival->path);
    if (bit_is_set(transfer->arrived, sequence)) {
        result->duplicate_packets++; /* what is there stays: the sender's memory is the same */
        return transfer;
    }
    memcpy(transfer->memory + (size_t)sequence * layout->full_bytes, bytes + HEADER_BYTES, arrival->body_bytes);
    result->last_ns = flow->core->now_ns;
    bit_set(transfer->arrived, sequence);
    if (flow->options.has_credit)
        credit_arrived(transfer);
    result->arrived_packets++;
    if (transfer->gathered_in)
        transfer->gathered_in->arrived_bytes += arrival->body_bytes;
    if (bytes[FLAGS_OFFSET] & FLAG_IMPORTANT) {
        bit_set(transfer->important, sequence);
        result->arrived_important++;
    }
    return transfer;
}

static void take_probe(const struct arrival *arrival)
{
    uint32_t attempt = read32(arrival->bytes + SEQUENCE_OFFSET);
    if (!count(arrival, true))
        return;
    if (arrival->flow->options.has_credit && !heard(arrival))
        arrival->flow->statistics.refused++;
    if (!attempt)
        return;
    if (repairs_at_once(arrival->flow)) {
        arrival->flow->statistics.refused++;
        return;
    }
    struct transfer *transfer = transfer_of(arrival);
    if (transfer)
        completion_marked(transfer, attempt, arrival->path);
}

static void take_acknowledgement(const struct arrival *arrival)
{
    struct flow *flow = arrival->flow;
    bool is_selective = arrival->bytes[KIND_OFFSET] == KIND_SELECTIVE;
    uint32_t fixed_bytes = ACKNOWLEDGEMENT_BYTES - HEADER_BYTES;
    if (arrival->path >= flow->path_count || (is_selective && !repairs_at_once(flow))
        || (is_selective ? arrival->body_bytes < fixed_bytes : arrival->body_bytes != fixed_bytes)) {
        flow->statistics.refused++;
        return;
    }
    if (is_selective
        && !names_take(flow, arrival->stamp, arrival->bytes + ACKNOWLEDGEMENT_BYTES, arrival->body_bytes - fixed_bytes))
        flow->statistics.refused++;
    if (repairs_at_once(flow))
        departures_look(flow);
    if (flow->options.has_credit)
        credit_granted(flow, arrival->stamp, read32(arrival->bytes + GRANTED_OFFSET));
    path_acknowledged(flow, arrival->path, arrival->bytes, arrival->arrived_ns);
    flow_activate(flow);
}

static void take_control(const struct arrival *arrival)
{
    struct flow *flow = arrival->flow;
    if (flow->options.has_keys && arrival->stamp + REPLAY_NS < flow->received_stamp) {
        flow->statistics.stale++;
        return;
    }
    if (flow->options.has_credit)
        credit_granted(flow, arrival->stamp, read32(arrival->bytes + GRANTED_OFFSET));
    control_received(flow, arrival->bytes, arrival->body_bytes, arrival->path);
}

/* What the kernel handed over at once: datagrams of one length, the last of which may be shorter. */
void receive_message(struct mlt *core, const uint8_t *bytes, uint32_t length, uint32_t segment_bytes, uint8_t tos,
                     int64_t arrived_ns)
{
    struct transfer *touched = NULL; /* told of its packets once */
    if (!segment_bytes || segment_bytes > length)
        segment_bytes = length;
    for (uint32_t at = 0; at < length; at += segment_bytes) {
        struct arrival arrival = {.tos = tos, .arrived_ns = arrived_ns};
        uint32_t rest = length - at;
        if (touched && rest >= segment_bytes + HEADER_BYTES)
            expect(touched, bytes + at + segment_bytes);
        if (!check(core, bytes + at, rest < segment_bytes ? rest : segment_bytes, &arrival))
            continue;
        uint8_t kind = arrival.bytes[KIND_OFFSET];
        struct transfer *transfer = kind == KIND_DATA ? take_data(&arrival) : NULL;
        if (touched && transfer != touched) {
            completion_arrived(touched);
            touched = NULL;
            if (transfer && !transfer->is_open)
                transfer = NULL;
        }
        if (transfer)
            touched = transfer;
        if (kind == KIND_PROBE)
            take_probe(&arrival);
        else if (kind == KIND_ACKNOWLEDGEMENT || kind == KIND_SELECTIVE)
            take_acknowledgement(&arrival);
        else if (kind == KIND_CONTROL)
            take_control(&arrival);
    }
    if (!touched)
        return;
    uint64_t missing_packets = touched->layout.packets - touched->result.arrived_packets;
    core->is_in_bulk = missing_packets * touched->layout.full_bytes > BULK_BYTES;
    if (core->is_in_bulk)
        core->bulk_ns = core->now_ns;
    completion_arrived(touched);
}

static void answer_path(struct flow *flow, int number)
{
    struct path *path = &flow->paths[number];
    int64_t now_ns = flow->core->now_ns;
    uint8_t kind = flow->naming_count ? KIND_SELECTIVE : KIND_ACKNOWLEDGEMENT;
    uint8_t *header = batch_small(flow, kind, path_for_control(flow, number), flow->options.control_tos);
    uint32_t bytes = ACKNOWLEDGEMENT_BYTES - HEADER_BYTES;
    if (!header)
        return;
    int64_t held_ns = now_ns - path->newest_arrived_ns;
    write16(header + PATH_OFFSET, (uint16_t)number);
    write64(header + ECHOED_OFFSET, path->newest_stamp);
    write32(header + HELD_OFFSET, held_ns < 0 ? 0 : held_ns > UINT32_MAX ? UINT32_MAX : (uint32_t)held_ns);
    write32(header + RECEIVED_OFFSET, path->received);
    write32(header + MARKED_OFFSET, path->received_marked);
    if (flow->options.has_credit)
        write32(header + GRANTED_OFFSET, credit_told(flow));
    bytes += names_put(flow, header + ACKNOWLEDGEMENT_BYTES, flow->frame_bytes - bytes);
    batch_small_done(flow, header, bytes);
    path->pending = path->pending_bytes = 0;
}

void replies_build(struct flow *flow)
{
    uint64_t due = flow->reply_paths & flow->pending_paths;
    flow->pending_paths &= ~due;
    flow->reply_paths = 0;
    int last = -1;
    for (int path = 0; due; path++, due >>= 1)
        if (due & 1) {
            answer_path(flow, path);
            last = path;
        }
    while (last >= 0 && names_are_new(flow) && batch_has_room(flow->core, 1, 0))
        answer_path(flow, last); /* there were more than one datagram holds */
    if (flow->pending_paths && flow->timers[TIMER_REPLY].place < 0)
        timer_set(flow->core, &flow->timers[TIMER_REPLY], flow->core->now_ns + flow->options.ack_delay_ns);
}
