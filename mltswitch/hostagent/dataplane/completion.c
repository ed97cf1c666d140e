/* When a receive is over: the completion policy, its two times, and what the sender hears of it.
 *
 * A bound is permission, not an aim. A patient receive ends early only when the sender has ended its pass (its markers
 * have come on all paths that it used, or stragglers have been waited for) and what is missing is within the bounds, or
 * when its soft time is over. MLT's own rule ends as soon as the bounds are met; LTP's is in gather.c.
 */
#include <stdio.h>

#include "internal.h"

static const int64_t STRAGGLE_NS = MILLISECOND; /* for packets that the request overtook, and at least a round trip */
static const double ROUNDING = 1e-9;

static uint64_t share_of(double bound, uint64_t whole)
{
    return (uint64_t)(bound * (double)whole + ROUNDING);
}

bool completion_is_within_bounds(const struct transfer *transfer)
{
    const struct layout *layout = &transfer->layout;
    const struct mlt_result *result = &transfer->result;
    uint64_t missing = layout->packets - result->arrived_packets;
    uint64_t missing_elements = missing * layout->elements_per_packet;
    if (!bit_is_set(transfer->arrived, layout->packets - 1))
        missing_elements -= (layout->full_bytes - layout->last_bytes) / layout->element_bytes;
    if (missing > share_of(transfer->policy.loss_bound, layout->packets)
        || missing_elements > share_of(transfer->policy.loss_bound, layout->elements))
        return false;
    if (transfer->policy.important_bound >= 1)
        return true;
    return transfer->knows_important
        && result->important_packets - result->arrived_important
        <= share_of(transfer->policy.important_bound, result->important_packets);
}

/* Where the policy's times count from; 0: not yet. */
static int64_t beginning_ns(const struct transfer *transfer)
{
    return transfer->policy.moment == MLT_FROM_POST ? transfer->result.posted_ns : transfer->result.first_ns;
}

static void set_timer(struct transfer *transfer)
{
    int64_t at_ns = transfer->straggle_ns, since_ns = beginning_ns(transfer);
    const struct mlt_policy *policy = &transfer->policy;
    if (since_ns && policy->soft_ns && !transfer->is_soft_over && since_ns + policy->soft_ns < at_ns)
        at_ns = since_ns + policy->soft_ns;
    if (since_ns && policy->hard_ns && since_ns + policy->hard_ns < at_ns)
        at_ns = since_ns + policy->hard_ns;
    timer_set(transfer->flow->core, &transfer->timer, at_ns);
}

void completion_begin(struct transfer *transfer)
{
    transfer->straggle_ns = NEVER;
    if (transfer->flow->options.has_credit)
        credit_posted(transfer);
    if (transfer->policy.stop_rule == MLT_GATHERED && !gather_join(transfer)) {
        transfer_end(transfer, MLT_NO_MEMORY, "no memory for its gather, or too many links in it");
        return;
    }
    if (!transfer->entry->is_closing)
        entry_say(transfer->flow, transfer->entry, SAY_READY);
    set_timer(transfer);
}

static void zero_missing(const struct transfer *transfer)
{
    const struct layout *layout = &transfer->layout;
    if (transfer->policy.keep_missing || transfer->result.arrived_packets == layout->packets)
        return;
    for (uint32_t packet = 0; packet < layout->packets; packet++)
        if (!bit_is_set(transfer->arrived, packet))
            memset(transfer->memory + (size_t)packet * layout->full_bytes, 0, layout_bytes(layout, packet));
}

/* A receive has ended that the peer has not heard of, and a send may wait for it. Where the end of the one before is
 * still to be said, that is enough. */
static void cancel_silent(struct transfer *transfer, int status, const char *text)
{
    struct entry *entry = transfer->entry;
    if (entry->ended || entry->says & SAY_CANCEL)
        return;
    link_remove(&entry->talk); /* it may wait for room for its announcement */
    entry->was_silent = true;
    entry_reason(entry, status, text);
    entry_say(transfer->flow, entry, SAY_CANCEL);
}

void completion_end(struct transfer *transfer, enum mlt_ending ending)
{
    struct flow *flow = transfer->flow;
    struct entry *entry = transfer->entry;
    zero_missing(transfer);
    transfer->result.ending = (uint8_t)ending;
    entry->says = (uint8_t)(entry->says & ~(SAY_READY | (entry->ended ? 0 : SAY_BITMAP)));
    if (entry->has_announced) {
        bool is_whole = transfer->result.arrived_packets == transfer->layout.packets;
        entry_announced_no_more(flow, entry);
        entry->is_closing = true;
        entry->ended = transfer;
        transfer_hold(flow->core, transfer);
        transfer->bitmap_said = 0;
        entry_say(flow, entry, (uint8_t)(is_whole ? SAY_STOP : SAY_BITMAP | SAY_STOP));
    } else {
        cancel_silent(transfer, MLT_OK, "");
    }
    transfer_end(transfer, MLT_OK, NULL);
}

/* The sender has ended its pass, and nothing more of it will come. */
static void answer(struct transfer *transfer)
{
    transfer->straggle_ns = NEVER;
    if (completion_is_within_bounds(transfer)) {
        completion_end(transfer, MLT_WITHIN_BOUNDS);
        return;
    }
    transfer->bitmap_said = 0;
    entry_say(transfer->flow, transfer->entry, SAY_BITMAP);
    set_timer(transfer);
}

/* Packets, a marker or a request have come. */
void completion_arrived(struct transfer *transfer)
{
    if (transfer->result.arrived_packets == transfer->layout.packets)
        completion_end(transfer, MLT_COMPLETE);
    else if ((transfer->policy.stop_rule == MLT_PAPER || transfer->is_soft_over) && completion_is_within_bounds(transfer))
        completion_end(transfer, MLT_WITHIN_BOUNDS);
    else if (transfer->gathered_in)
        gather_arrived(transfer);
    else if (transfer->straggle_ns != NEVER && transfer->marked_paths
             && !(transfer->marked_paths & ~transfer->heard_paths))
        answer(transfer);
}

void completion_begun(struct transfer *transfer)
{
    if (transfer->result.first_ns)
        return;
    transfer->result.first_ns = transfer->flow->core->now_ns;
    if (transfer->gathered_in)
        gather_begun(transfer);
    if (transfer->flow->options.has_credit)
        credit_begun(transfer);
    set_timer(transfer);
}

bool completion_asked(struct transfer *transfer, uint32_t attempt, uint32_t important, uint64_t paths)
{
    const struct flow *flow = transfer->flow;
    if (attempt != transfer->attempt + 1 || important > transfer->layout.packets
        || important < transfer->result.arrived_important)
        return false;
    transfer->attempt = attempt;
    transfer->knows_important = true;
    transfer->result.important_packets = important;
    transfer->result.passes = attempt;
    transfer->marked_paths = paths;
    transfer->heard_paths = transfer->heard_next_paths;
    transfer->heard_next_paths = 0;
    transfer->straggle_ns = flow->core->now_ns + (flow_rtt(flow) > STRAGGLE_NS ? flow_rtt(flow) : STRAGGLE_NS);
    completion_begun(transfer);
    set_timer(transfer);
    completion_arrived(transfer);
    return true;
}

void completion_marked(struct transfer *transfer, uint32_t attempt, int path)
{
    if (attempt == transfer->attempt + 1)
        transfer->heard_next_paths |= (uint64_t)1 << path;
    if (attempt != transfer->attempt)
        return;
    transfer->heard_paths |= (uint64_t)1 << path;
    completion_arrived(transfer);
}

static void fail_at_deadline(struct transfer *transfer)
{
    char text[MLT_TEXT_BYTES];
    const struct flow *flow = transfer->flow;
    const struct mlt_result *result = &transfer->result;
    long long heard_ms = (flow->core->now_ns - flow->heard_ns) / MILLISECOND;
    if (result->is_send)
        snprintf(text, sizeof text, "time is up: %s, %u passes; peer last heard %lld ms ago",
                 !result->ready_ns ? "the peer has not posted it"
                 : flow->credit.asked > 1 ? "the peer grants nothing more" : "the peer did not end it",
                 result->passes, heard_ms);
    else
        snprintf(text, sizeof text, "time is up: %u of %u packets arrived; peer last heard %lld ms ago",
                 result->arrived_packets, result->packets, heard_ms);
    transfer_cancel(transfer, MLT_DEADLINE, text);
}

void transfer_timeout(struct transfer *transfer)
{
    int64_t now_ns = transfer->flow->core->now_ns, since_ns = beginning_ns(transfer);
    const struct mlt_policy *policy = &transfer->policy;
    if (transfer->result.is_send) {
        if (now_ns >= transfer->deadline_ns)
            fail_at_deadline(transfer);
        else if (batch_has_room(transfer->flow->core, MLT_MOST_PATHS, 0))
            send_end_pass(transfer); /* it has lingered */
        else
            timer_set(transfer->flow->core, &transfer->timer, now_ns + MILLISECOND);
        return;
    }
    if (since_ns && policy->hard_ns && now_ns >= since_ns + policy->hard_ns) {
        if (policy->at_hard_time == MLT_TAKE)
            completion_end(transfer, MLT_TAKEN);
        else if (transfer->gathered_in && completion_is_within_bounds(transfer))
            completion_end(transfer, MLT_AT_DEADLINE);
        else
            fail_at_deadline(transfer);
        return;
    }
    if (since_ns && policy->soft_ns && now_ns >= since_ns + policy->soft_ns)
        transfer->is_soft_over = true;
    set_timer(transfer);
    if (transfer->is_soft_over && completion_is_within_bounds(transfer))
        completion_end(transfer, MLT_WITHIN_BOUNDS);
    else if (now_ns >= transfer->straggle_ns)
        answer(transfer);
}

/* Fails it, and tells the peer: of a send once the peer is ready for it. */
void transfer_cancel(struct transfer *transfer, int status, const char *text)
{
    struct entry *entry = transfer->entry;
    bool is_known = transfer->result.is_send ? transfer->result.ready_ns != 0 : entry->has_announced;
    if (is_known) {
        entry_announced_no_more(transfer->flow, entry);
        entry->is_closing = !transfer->result.is_send;
        entry->was_silent = false;
        entry_reason(entry, status, text);
        entry_say(transfer->flow, entry, SAY_CANCEL);
    } else if (transfer->result.is_send) {
        entry_keep_end(transfer->flow, entry, EARLY_SEND, status, text);
    } else {
        cancel_silent(transfer, status, text);
    }
    transfer_end(transfer, status, text);
}
