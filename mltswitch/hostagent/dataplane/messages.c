/* The messages of the control stream: how they are written, and what follows from them.
 *
 * Each is a type, flags, the length of its body, and the body: fixed fields, then whatever later versions add. A receiver
 * skips what it does not know, unless REQUIRED says that it must not. All numbers are in network order.
 *
 *   READY            tensor, round, element type, stop rule, at hard time, 0 (8 bits each), elements (64); then options:
 *                    tag, length (8 each), value
 *   STATUS_REQUEST   tensor, round, attempt, important packets, paths with markers (64, a bit each)
 *   BITMAP           tensor, round, attempt (2^32-1: the last), byte offset, bytes of the bitmap: 1 = has arrived
 *   STOP             tensor, round, outcome, arrived packets, arrived important packets
 *   STOPPED          tensor, round, packets sent (64)
 *   CANCEL           tensor, round, by whom (enum canceller), reason (8 each), text
 *   REGISTER         tensor, round, important packets; once both are known: least round trip (ns, 64), bottleneck (bit/s, 64)
 *   USER             bytes
 *   USER_CREDIT      bytes of USER messages that may have been sent in all (64)
 */
#include <stdlib.h>

#include "internal.h"

enum {
    READY = 1,
    STATUS_REQUEST = 2,
    BITMAP = 3,
    STOP = 4,
    STOPPED = 5,
    CANCEL = 6,
    USER = 7,
    USER_CREDIT = 8,
    REGISTER = 11,

    REQUIRED = 1, /* a flag */

    OPTION_LOSS_BOUND = 1, /* parts of a million, 32 bits each */
    OPTION_IMPORTANT_BOUND = 2,
    OPTION_SOFT_NS = 3,
    OPTION_HARD_NS = 4,

    KEY_BYTES = 8, /* tensor and round, which most begin with */
    READY_BYTES = 20,
    READY_OPTION_BYTES = 2 * (2 + 4) + 2 * (2 + 8),
    STATUS_REQUEST_BYTES = 24,
    BITMAP_BYTES = 16,
    STOP_BYTES = 20,
    STOPPED_BYTES = 16,
    CANCEL_BYTES = 10,
    REGISTER_BYTES = 12,
    REGISTER_KNOWN_BYTES = REGISTER_BYTES + 16,
    LEAST_BITMAP_PIECE = 32,
};
/* The last one has not said READY; its reason may be 0: it takes nothing. */
enum canceller { BY_RECEIVER = 0, BY_SENDER = 1, BY_SILENT_RECEIVER = 2 };
static const uint32_t FINAL = UINT32_MAX; /* as attempt of a bitmap */
static const uint64_t LONGEST_ROUND_TRIP_NS = 3600 * (uint64_t)SECOND; /* that anybody may claim */

/* ------------------------------------------------------------------------------------------------------- writing */

struct writer {
    uint8_t *at;
    uint32_t room;
};

/* The place of a body of so many bytes; null: it does not fit. */
static uint8_t *put(struct writer *writer, uint8_t type, uint32_t length)
{
    if (writer->room < MESSAGE_HEADER_BYTES + length)
        return NULL;
    uint8_t *body = writer->at + MESSAGE_HEADER_BYTES;
    writer->at[0] = type;
    writer->at[1] = 0;
    write16(writer->at + 2, (uint16_t)length);
    writer->at = body + length;
    writer->room -= MESSAGE_HEADER_BYTES + length;
    return body;
}

static uint8_t *put_keyed(struct writer *writer, uint8_t type, uint32_t length, const struct entry *entry)
{
    uint8_t *body = put(writer, type, length);
    if (body) {
        write32(body, entry->tensor);
        write32(body + 4, entry->round);
    }
    return body;
}

static uint8_t *put_option32(uint8_t *at, uint8_t tag, uint32_t value)
{
    at[0] = tag;
    at[1] = 4;
    write32(at + 2, value);
    return at + 6;
}

static uint8_t *put_option64(uint8_t *at, uint8_t tag, uint64_t value)
{
    at[0] = tag;
    at[1] = 8;
    write64(at + 2, value);
    return at + 10;
}

static bool say_ready(struct writer *writer, struct flow *flow, struct entry *entry)
{
    struct transfer *transfer = entry->transfer;
    uint8_t *body = put_keyed(writer, READY, READY_BYTES + READY_OPTION_BYTES, entry);
    if (!body)
        return false;
    body[8] = transfer->layout.element_type;
    body[9] = transfer->policy.stop_rule;
    body[10] = transfer->policy.at_hard_time;
    body[11] = 0;
    write64(body + 12, transfer->layout.elements);
    uint8_t *option = put_option32(body + READY_BYTES, OPTION_LOSS_BOUND, (uint32_t)(transfer->policy.loss_bound * MILLION));
    option = put_option32(option, OPTION_IMPORTANT_BOUND, (uint32_t)(transfer->policy.important_bound * MILLION));
    option = put_option64(option, OPTION_SOFT_NS, (uint64_t)transfer->policy.soft_ns);
    put_option64(option, OPTION_HARD_NS, (uint64_t)transfer->policy.hard_ns);
    entry->has_announced = true;
    flow->announced++;
    /* Packets of this transfer are sent after this has been heard: none is older than what we have seen. */
    transfer->not_before = flow->received_stamp;
    return true;
}

static bool say_status_request(struct writer *writer, const struct entry *entry)
{
    const struct transfer *transfer = entry->transfer;
    uint8_t *body = put_keyed(writer, STATUS_REQUEST, STATUS_REQUEST_BYTES, entry);
    if (!body)
        return false;
    write32(body + 8, transfer->pass.attempt);
    write32(body + 12, transfer->result.important_packets);
    write64(body + 16, transfer->pass.used_paths);
    return true;
}

/* As much of it as fits; true when that was the rest. */
static bool say_bitmap(struct writer *writer, const struct entry *entry)
{
    struct transfer *transfer = entry->ended ? entry->ended : entry->transfer;
    uint32_t bytes = (transfer->layout.packets + 7) / 8;
    while (transfer->bitmap_said < bytes) {
        uint32_t rest = bytes - transfer->bitmap_said;
        uint32_t overhead = MESSAGE_HEADER_BYTES + BITMAP_BYTES;
        uint32_t piece = writer->room > overhead ? writer->room - overhead : 0;
        if (piece > rest)
            piece = rest;
        if (piece < rest && piece < LEAST_BITMAP_PIECE)
            return false;
        uint8_t *body = put_keyed(writer, BITMAP, BITMAP_BYTES + piece, entry);
        write32(body + 8, entry->ended ? FINAL : transfer->attempt);
        write32(body + 12, transfer->bitmap_said);
        memcpy(body + BITMAP_BYTES, transfer->arrived + transfer->bitmap_said, piece);
        transfer->bitmap_said += piece;
    }
    return true;
}

static bool say_stop(struct writer *writer, struct flow *flow, struct entry *entry)
{
    struct transfer *transfer = entry->ended;
    uint8_t *body = put_keyed(writer, STOP, STOP_BYTES, entry);
    if (!body)
        return false;
    write32(body + 8, transfer->result.ending);
    write32(body + 12, transfer->result.arrived_packets);
    write32(body + 16, transfer->result.arrived_important);
    entry->ended = NULL;
    transfer_unhold(flow->core, transfer);
    return true;
}

static bool say_cancel(struct writer *writer, const struct entry *entry)
{
    uint32_t length = (uint32_t)strnlen(entry->text, MLT_TEXT_BYTES - 1);
    uint8_t *body = put_keyed(writer, CANCEL, CANCEL_BYTES + length, entry);
    if (!body)
        return false;
    body[8] = entry->is_send ? BY_SENDER : entry->was_silent ? BY_SILENT_RECEIVER : BY_RECEIVER;
    body[9] = entry->reason;
    memcpy(body + CANCEL_BYTES, entry->text, length);
    return true;
}

static bool say_register(struct writer *writer, struct flow *flow, const struct entry *entry)
{
    bool is_known = flow->told_rtt_ns > 0 && flow->told_bps >= 1;
    uint8_t *body = put_keyed(writer, REGISTER, is_known ? REGISTER_KNOWN_BYTES : REGISTER_BYTES, entry);
    if (!body)
        return false;
    write32(body + 8, entry->transfer->result.important_packets);
    if (is_known) {
        write64(body + REGISTER_BYTES, (uint64_t)flow->told_rtt_ns);
        write64(body + REGISTER_BYTES + 8, (uint64_t)flow->told_bps);
    }
    return true;
}

static bool say(struct writer *writer, struct flow *flow, struct entry *entry, uint8_t message)
{
    switch (message) {
    case SAY_STOPPED: {
        uint8_t *body = put_keyed(writer, STOPPED, STOPPED_BYTES, entry);
        if (body)
            write64(body + 8, 0);
        return body != NULL;
    }
    case SAY_CANCEL:
        return say_cancel(writer, entry);
    case SAY_BITMAP:
        return say_bitmap(writer, entry);
    case SAY_STOP:
        return say_stop(writer, flow, entry);
    case SAY_READY:
        return say_ready(writer, flow, entry);
    case SAY_REGISTER:
        return say_register(writer, flow, entry);
    default:
        return say_status_request(writer, entry);
    }
}

/* Returns whether all that there was to say of this one is said. */
static bool say_all(struct writer *writer, struct flow *flow, struct entry *entry)
{
    /* What ends the last transfer comes before what begins the next. */
    static const uint8_t order[] = {SAY_STOPPED, SAY_CANCEL, SAY_BITMAP, SAY_STOP, SAY_READY, SAY_REGISTER,
                                    SAY_STATUS_REQUEST};
    for (size_t at = 0; at < sizeof order; at++) {
        if (!(entry->says & order[at]))
            continue;
        if (order[at] == SAY_READY && flow->announced >= MLT_MOST_OFFERS) {
            link_remove(&entry->talk);
            link_append(&flow->control.waiting, &entry->talk);
            return true;
        }
        if (!say(writer, flow, entry, order[at]))
            return false;
        entry->says = (uint8_t)(entry->says & ~order[at]);
    }
    link_remove(&entry->talk);
    entry_settle(flow, entry);
    return true;
}

static bool say_user_messages(struct writer *writer, struct flow *flow)
{
    struct user_queue *queue = &flow->control.user;
    if (flow->control.says_credit) {
        uint8_t *body = put(writer, USER_CREDIT, 8);
        if (!body)
            return false;
        write64(body, flow->user_told + MLT_USER_CREDIT_BYTES);
        flow->control.says_credit = false;
    }
    while (queue->first) {
        struct user_message *message = queue->first;
        uint8_t *body = put(writer, USER, (uint32_t)message->length);
        if (!body)
            return false;
        memcpy(body, message->bytes, (size_t)message->length);
        queue->first = message->next;
        if (!queue->first)
            queue->last = &queue->first;
        free(message);
    }
    return true;
}

/* Fills a frame with what there is to say; returns its length. */
uint32_t messages_fill(struct flow *flow, uint8_t *bytes, uint32_t room)
{
    struct writer writer = {bytes, room};
    if (say_user_messages(&writer, flow))
        while (link_is_in(&flow->control.talk) && say_all(&writer, flow, flow->control.talk.next->owner))
            continue;
    return room - writer.room;
}

/* ------------------------------------------------------------------------------------------------------- reading */

struct body {
    const uint8_t *at;
    uint32_t length, tensor, round; /* the latter two where the message begins with them */
};

static bool take_ready(struct flow *flow, const struct body *body)
{
    struct entry *entry = entry_take(flow, body->tensor, body->round, true, NULL);
    if (!entry || flow->offers >= MLT_MOST_OFFERS)
        return false;
    if (entry->transfer && entry->transfer->stage != WAITS_FOR_READY)
        return false;
    uint32_t loss = MILLION; /* a peer that says nothing of it may take what is there */
    for (uint32_t at = READY_BYTES; at < body->length; at += 2 + body->at[at + 1]) {
        if (body->length - at < 2 || body->length - at < 2u + body->at[at + 1])
            return false;
        if (body->at[at] == OPTION_LOSS_BOUND && body->at[at + 1] == 4)
            loss = read32(body->at + at + 2);
    }
    bool is_too_late = entry->early_end == EARLY_SEND;
    entry_forget_end(flow, entry);
    if (is_too_late) {
        entry_say(flow, entry, SAY_CANCEL);
        return true;
    }
    flow->offers += !entry->is_offer;
    entry->is_offer = true;
    entry->offer_type = body->at[8];
    entry->offer_takes_rest = body->at[10] != MLT_FAIL;
    entry->offer_loss = loss;
    entry->offer_elements = read64(body->at + 12);
    if (entry->transfer)
        send_ready(entry->transfer);
    return true;
}

static bool take_status_request(struct flow *flow, const struct body *body)
{
    if (repairs_at_once(flow))
        return false;
    const struct entry *entry = entry_find(flow, body->tensor, body->round, false);
    if (!entry || !entry->transfer || !entry->has_announced)
        return true; /* over meanwhile */
    return completion_asked(entry->transfer, read32(body->at + 8), read32(body->at + 12), read64(body->at + 16));
}

/* How many important packets there are, and what the sender knows of the network on its way to us. */
static bool take_register(struct flow *flow, const struct body *body)
{
    bool is_known = body->length >= REGISTER_KNOWN_BYTES;
    if (!repairs_at_once(flow) || (body->length != REGISTER_BYTES && !is_known))
        return false;
    if (is_known) {
        uint64_t rtt_ns = read64(body->at + REGISTER_BYTES), bps = read64(body->at + REGISTER_BYTES + 8);
        struct mlt_flow_statistics *told = &flow->statistics;
        if (!rtt_ns || rtt_ns > LONGEST_ROUND_TRIP_NS || !bps)
            return false;
        bool is_new = told->peer_base_rtt_ns != (int64_t)rtt_ns || told->peer_bandwidth_bps != (double)bps;
        told->peer_base_rtt_ns = (int64_t)rtt_ns;
        told->peer_bandwidth_bps = (double)bps;
        if (is_new)
            gather_told(flow);
    }
    const struct entry *entry = entry_find(flow, body->tensor, body->round, false);
    struct transfer *transfer = entry && entry->has_announced ? entry->transfer : NULL;
    uint32_t important = read32(body->at + 8);
    if (!transfer)
        return true; /* over meanwhile */
    if (important > transfer->layout.packets || important < transfer->result.arrived_important)
        return false;
    transfer->knows_important = true;
    transfer->result.important_packets = important;
    completion_begun(transfer);
    if (transfer->is_open)
        completion_arrived(transfer);
    return true;
}

static bool take_bitmap(struct flow *flow, const struct body *body)
{
    const struct entry *entry = entry_find(flow, body->tensor, body->round, true);
    struct transfer *transfer = entry ? entry->transfer : NULL;
    uint32_t attempt = read32(body->at + 8), offset = read32(body->at + 12), piece = body->length - BITMAP_BYTES;
    if (!transfer || transfer->stage == WAITS_FOR_READY)
        return true;
    uint32_t bytes = (transfer->layout.packets + 7) / 8;
    if (attempt == FINAL && offset == 0)
        transfer->bitmap_next = 0;
    if (offset != transfer->bitmap_next || piece > bytes - offset)
        return false;
    if (attempt != FINAL && repairs_at_once(flow))
        return false;
    if (attempt != FINAL && (transfer->stage != WAITS_FOR_BITMAP || attempt != transfer->pass.attempt))
        return false;
    memcpy(transfer->arrived + offset, body->at + BITMAP_BYTES, piece);
    transfer->bitmap_next += piece;
    transfer->has_final_bitmap = attempt == FINAL;
    if (transfer->bitmap_next == bytes && attempt != FINAL)
        send_again(transfer);
    return true;
}

/* The peer's, which it had announced. */
static void receive_is_over(struct flow *flow, struct entry *entry, int status, const char *text)
{
    if (entry->is_offer)
        entry_keep_end(flow, entry, EARLY_RECEIVE, status, text);
    entry_withdraw(flow, entry);
    entry_say(flow, entry, SAY_STOPPED);
}

static bool take_stop(struct flow *flow, const struct body *body)
{
    struct entry *entry = entry_take(flow, body->tensor, body->round, true, NULL);
    if (!entry)
        return false;
    receive_is_over(flow, entry, MLT_OK, "");
    struct transfer *transfer = entry->transfer;
    if (!transfer || transfer->stage == WAITS_FOR_READY)
        return true;
    if (!transfer->has_final_bitmap)
        memset(transfer->arrived, 0xFF, (transfer->layout.packets + 7) / 8);
    uint32_t arrived = read32(body->at + 12);
    transfer->result.arrived_packets = arrived < transfer->layout.packets ? arrived : transfer->layout.packets;
    transfer->result.arrived_important = read32(body->at + 16);
    transfer->result.ending = (uint8_t)(read32(body->at + 8) <= MLT_AT_DEADLINE ? read32(body->at + 8) : MLT_WITHIN_BOUNDS);
    transfer_end(transfer, MLT_OK, NULL);
    return true;
}

static bool take_stopped(struct flow *flow, const struct body *body)
{
    struct entry *entry = entry_find(flow, body->tensor, body->round, false);
    if (entry)
        entry_reopen(flow, entry);
    return true;
}

static bool take_cancel(struct flow *flow, const struct body *body)
{
    bool is_by_sender = body->at[8] == BY_SENDER, is_by_silent = body->at[8] == BY_SILENT_RECEIVER;
    char text[MLT_TEXT_BYTES] = {0};
    for (uint32_t at = CANCEL_BYTES; at < body->length && at - CANCEL_BYTES < MLT_TEXT_BYTES - 1; at++)
        text[at - CANCEL_BYTES] = body->at[at] >= ' ' && body->at[at] <= '~' ? (char)body->at[at] : '?';
    int status = body->at[9] == -MLT_DEADLINE ? MLT_PEER_DEADLINE
        : body->at[9] == -MLT_MISMATCH        ? MLT_MISMATCH
        : !body->at[9] && is_by_silent        ? MLT_OK
                                              : MLT_PEER_CANCELLED;
    struct entry *entry = is_by_sender ? entry_find(flow, body->tensor, body->round, false)
                                       : entry_take(flow, body->tensor, body->round, true, NULL);
    if (!entry)
        return is_by_sender;
    struct transfer *transfer = entry->transfer;
    if (is_by_sender) {
        if (transfer && entry->has_announced) {
            entry_announced_no_more(flow, entry);
            transfer_end(transfer, status, text);
        } else {
            entry_reopen(flow, entry);
        }
        return true;
    }
    if (is_by_silent) {
        bool are_both_over = entry->early_end == EARLY_SEND;
        if (transfer && transfer->stage == WAITS_FOR_READY)
            transfer_end(transfer, status, text);
        else if (!transfer && !are_both_over)
            entry_keep_end(flow, entry, EARLY_RECEIVE, status, text);
        if (are_both_over) {
            entry_forget_end(flow, entry);
            entry_settle(flow, entry);
        }
        return true;
    }
    receive_is_over(flow, entry, status, text);
    if (transfer && transfer->stage != WAITS_FOR_READY)
        transfer_end(transfer, status, text);
    return true;
}

static bool take_user(struct flow *flow, const struct body *body)
{
    struct shared *shared = &flow->core->shared;
    if (!body->length || body->length > MLT_MOST_USER_BYTES)
        return false;
    struct user_message *message = malloc(sizeof *message + body->length);
    if (!message)
        return false;
    message->next = NULL;
    message->length = (int32_t)body->length;
    memcpy(message->bytes, body->at, body->length);
    flow->user_received += body->length + MESSAGE_HEADER_BYTES;
    pthread_mutex_lock(&shared->lock);
    bool is_allowed = flow->user_received <= flow->user_told + MLT_USER_CREDIT_BYTES;
    bool is_first = !flow->inbox.first;
    if (is_allowed) {
        *flow->inbox.last = message;
        flow->inbox.last = &message->next;
    }
    pthread_mutex_unlock(&shared->lock);
    if (!is_allowed)
        free(message);
    else if (is_first)
        core_event(flow->core, &(struct mlt_event){.kind = MLT_EVENT_USER, .flow = flow->token, .path = -1});
    return is_allowed;
}

static bool take_user_credit(struct flow *flow, const struct body *body)
{
    struct shared *shared = &flow->core->shared;
    uint64_t credit = read64(body->at);
    pthread_mutex_lock(&shared->lock);
    bool is_sane = credit <= flow->user_sent + MLT_USER_CREDIT_BYTES;
    if (is_sane && credit > flow->user_credit)
        flow->user_credit = credit;
    pthread_mutex_unlock(&shared->lock);
    return is_sane;
}

/* Messages by their type. False from one of them: the peer broke the protocol. */
static const struct {
    uint32_t least_bytes;
    bool (*take)(struct flow *, const struct body *);
} KINDS[] = {
    [READY] = {READY_BYTES, take_ready},
    [STATUS_REQUEST] = {STATUS_REQUEST_BYTES, take_status_request},
    [BITMAP] = {BITMAP_BYTES, take_bitmap},
    [STOP] = {STOP_BYTES, take_stop},
    [STOPPED] = {STOPPED_BYTES, take_stopped},
    [CANCEL] = {CANCEL_BYTES, take_cancel},
    [USER] = {1, take_user},
    [USER_CREDIT] = {8, take_user_credit},
    [REGISTER] = {REGISTER_BYTES, take_register},
};

bool messages_take(struct flow *flow, const uint8_t *bytes, uint32_t length)
{
    while (length) {
        if (length < MESSAGE_HEADER_BYTES)
            return false;
        uint8_t type = bytes[0], flags = bytes[1];
        struct body body = {.at = bytes + MESSAGE_HEADER_BYTES, .length = read16(bytes + 2)};
        if (body.length > length - MESSAGE_HEADER_BYTES)
            return false;
        if (body.length >= KEY_BYTES) {
            body.tensor = read32(body.at);
            body.round = read32(body.at + 4);
        }
        bool is_known = type < sizeof KINDS / sizeof *KINDS && KINDS[type].take;
        if (!is_known && flags & REQUIRED)
            return false;
        if (is_known && (body.length < KINDS[type].least_bytes || !KINDS[type].take(flow, &body)))
            return false;
        if (flow->table.count > flow->open + flow->early_count + 2 * MLT_MOST_OFFERS)
            return false; /* entries that only this peer's messages have made */
        bytes += MESSAGE_HEADER_BYTES + body.length;
        length -= MESSAGE_HEADER_BYTES + body.length;
    }
    return true;
}
