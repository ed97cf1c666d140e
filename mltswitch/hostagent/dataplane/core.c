/* The core's turn: commands, timers, replies and data, in this order; and how transfers and flows end.
 *
 * Nothing here asks the kernel for anything but the memory of timers; time comes as an argument.
 */
#include <stdlib.h>

#include "internal.h"

enum {
    DEFAULT_TRANSFERS = 65536,
    DEFAULT_EVENTS = 4096,
    FIRST_TIMERS = 1024,
    FLUSH_BYTES = MLT_WINDOW_BYTES / 2,
};

/* ---------------------------------------------------------------------------------------------------- lists */

void link_init(struct link *link, void *owner)
{
    *link = (struct link){link, link, owner};
}

bool link_is_in(const struct link *link)
{
    return link->next != link;
}

void link_remove(struct link *link)
{
    link->previous->next = link->next;
    link->next->previous = link->previous;
    link->previous = link->next = link;
}

void link_append(struct link *list, struct link *link)
{
    if (link_is_in(link))
        return;
    link->previous = list->previous;
    link->next = list;
    list->previous->next = link;
    list->previous = link;
}

/* --------------------------------------------------------------------------------------------------- timers */

/* The heap grows by doubling, and never shrinks. */
static void timers_grow(struct timers *timers)
{
    int32_t room = timers->room ? 2 * timers->room : FIRST_TIMERS;
    struct timer **heap = realloc(timers->heap, (size_t)room * sizeof *heap);
    if (!heap)
        abort(); /* a data plane that forgets its deadlines is worse than none */
    timers->heap = heap;
    timers->room = room;
}

void timer_init(struct timer *timer, enum timer_kind kind, void *owner)
{
    *timer = (struct timer){.at_ns = NEVER, .place = -1, .kind = (int32_t)kind, .owner = owner};
}

static void timer_put(struct timers *timers, int32_t place, struct timer *timer)
{
    timers->heap[place] = timer;
    timer->place = place;
}

static void timer_settle(struct timers *timers, struct timer *timer)
{
    int32_t place = timer->place;
    while (place > 0 && timers->heap[(place - 1) / 2]->at_ns > timer->at_ns) {
        timer_put(timers, place, timers->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    for (;;) {
        int32_t child = 2 * place + 1;
        if (child >= timers->count)
            break;
        if (child + 1 < timers->count && timers->heap[child + 1]->at_ns < timers->heap[child]->at_ns)
            child++;
        if (timers->heap[child]->at_ns >= timer->at_ns)
            break;
        timer_put(timers, place, timers->heap[child]);
        place = child;
    }
    timer_put(timers, place, timer);
}

void timer_cancel(struct mlt *core, struct timer *timer)
{
    struct timers *timers = &core->timers;
    if (timer->place < 0)
        return;
    struct timer *last = timers->heap[--timers->count];
    if (last != timer) {
        timer_put(timers, timer->place, last);
        timer_settle(timers, last);
    }
    timer->place = -1;
    timer->at_ns = NEVER;
}

void timer_set(struct mlt *core, struct timer *timer, int64_t at_ns)
{
    struct timers *timers = &core->timers;
    if (at_ns == NEVER) {
        timer_cancel(core, timer);
        return;
    }
    if (timer->place < 0) {
        if (timers->count == timers->room)
            timers_grow(timers);
        timer->place = timers->count++;
    } else if (timer->at_ns == at_ns) {
        return;
    }
    timer->at_ns = at_ns;
    timer_settle(timers, timer);
}

static void timer_fire(struct mlt *core, struct timer *timer)
{
    struct flow *flow = timer->owner;
    timer_cancel(core, timer);
    switch ((enum timer_kind)timer->kind) {
    case TIMER_TRANSFER:
        transfer_timeout(timer->owner);
        break;
    case TIMER_CONTROL:
        control_timeout(flow);
        break;
    case TIMER_REPLY:
        flow->reply_paths |= flow->pending_paths;
        if (flow->control.reply_later)
            flow->control.reply_now = true;
        flow_reply(flow);
        break;
    case TIMER_PACE:
        flow_activate(flow);
        break;
    case TIMER_TAIL:
        departures_tail(flow);
        break;
    case TIMER_CREDIT:
        credit_ask(flow);
        break;
    case TIMER_PORT:
        core->port.is_dirty = true;
        break;
    case TIMER_LINK:
        gather_timeout(timer->owner);
        break;
    case TIMER_HEALTH:
    case TIMER_WATCH:
        paths_look(flow);
        break;
    }
}

/* --------------------------------------------------------------------------------------------------- others */

/* xorshift64*: choices need to look random, not to be secret. */
uint64_t random_next(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * 0x2545F4914F6CDD1DULL;
}

void core_init(struct mlt *core, const struct mlt_options *options)
{
    core->now_ns = options->now_ns;
    core->random = options->seed * 0x9E3779B97F4A7C15ULL | 1;
    core->token_random = ~core->random | 1;
    link_init(&core->active, NULL);
    link_init(&core->replying, NULL);
    link_init(&core->gathers, NULL);
    port_init(&core->port);
    core->shared.slot_count = options->most_transfers ? options->most_transfers : DEFAULT_TRANSFERS;
    core->shared.event_room = options->events ? options->events : DEFAULT_EVENTS + core->shared.slot_count;
}

void flow_reply(struct flow *flow)
{
    link_append(&flow->core->replying, &flow->replying);
}

void flow_activate(struct flow *flow)
{
    if (flow_has_data(flow))
        link_append(&flow->core->active, &flow->active);
}

/* Acknowledgements and control messages leave before data: they are short, and somebody waits for them. */
static void build_replies(struct mlt *core)
{
    while (link_is_in(&core->replying) && batch_has_room(core, MLT_MOST_PATHS + CONTROL_FRAMES + 1, 0)) {
        struct flow *flow = core->replying.next->owner;
        link_remove(&flow->replying);
        replies_build(flow);
        control_build(flow);
    }
}

bool core_turn(struct mlt *core, int64_t now_ns)
{
    if (now_ns > core->now_ns)
        core->now_ns = now_ns;
    core->counters.turns++;
    commands_run(core);
    while (core->timers.count && core->timers.heap[0]->at_ns <= core->now_ns)
        timer_fire(core, core->timers.heap[0]);
    port_divide(core);
    if (core->is_blocked)
        batch_flush(core);
    int64_t budget_bytes = TURN_BYTES;
    while (!core->is_blocked && budget_bytes > 0) {
        build_replies(core);
        if (!link_is_in(&core->active))
            break;
        if (!batch_has_room(core, MLT_WINDOW_PACKETS, MLT_WINDOW_BYTES)) {
            batch_flush(core);
            continue;
        }
        struct flow *flow = core->active.next->owner;
        int64_t sent_bytes = send_flow(flow);
        budget_bytes -= sent_bytes;
        link_remove(&flow->active);
        if (sent_bytes)
            flow_activate(flow);
        if (core->batch.bytes >= FLUSH_BYTES) /* while it is in the cache; time goes on meanwhile, and credit grows */
            batch_flush(core);
    }
    if (!core->is_blocked)
        batch_flush(core);
    return !core->is_blocked && (link_is_in(&core->active) || link_is_in(&core->replying));
}

/* ----------------------------------------------------------------------------------------------------- ends */

void transfer_end(struct transfer *transfer, int status, const char *text)
{
    struct flow *flow = transfer->flow;
    struct mlt *core = flow->core;
    struct mlt_result *result = &transfer->result;
    if (!transfer->is_open)
        return;
    transfer->is_open = false;
    timer_cancel(core, &transfer->timer);
    link_remove(&transfer->sending);
    if (transfer->left && transfer->stage != WAITS_FOR_READY) {
        queues_leave(transfer);
        departures_forget(transfer);
    }
    if (transfer->gathered_in)
        gather_leave(transfer);
    if (transfer->is_counted)
        credit_ended(transfer);
    names_forget(transfer);
    batch_forget(core, transfer, NULL);
    if (--flow->open == 0)
        timer_cancel(core, &flow->timers[TIMER_WATCH]);
    struct entry *entry = transfer->entry;
    if (entry && entry->transfer == transfer) {
        entry->transfer = NULL;
        entry->says = (uint8_t)(entry->says & ~(SAY_READY | SAY_STATUS_REQUEST | SAY_REGISTER | (entry->ended ? 0 : SAY_BITMAP)));
    }
    result->arrived = transfer->arrived;
    result->is_partial = result->arrived_packets < result->packets;
    result->ended_ns = core->now_ns;
    if (text)
        for (int at = 0; at < MLT_TEXT_BYTES - 1 && text[at]; at++)
            result->text[at] = text[at];
    struct shared *shared = &core->shared;
    pthread_mutex_lock(&shared->lock);
    result->status = status;
    transfer->is_done = true;
    bool must_notify = transfer->notify;
    pthread_mutex_unlock(&shared->lock);
    pthread_cond_broadcast(&shared->done);
    if (must_notify)
        core_event(core, &(struct mlt_event){.kind = MLT_EVENT_DONE, .flow = flow->token,
                                             .transfer = result->transfer, .value = status});
    if (entry)
        entry_settle(flow, entry);
    transfer_unhold(core, transfer);
}

/* Everything that is open between the two ends fails; nothing of it is said to the peer. */
void flow_fail(struct flow *flow, int status, const char *text)
{
    for (uint32_t bucket = 0; bucket < flow->table.size; bucket++)
        for (struct entry *entry = flow->table.buckets[bucket], *next; entry; entry = next) {
            next = entry->next;
            entry->says = 0;
            if (entry->ended) {
                transfer_unhold(flow->core, entry->ended);
                entry->ended = NULL;
            }
            link_remove(&entry->talk);
            entry->is_offer = entry->is_closing = entry->has_announced = false;
            entry_forget_end(flow, entry);
            if (entry->transfer)
                transfer_end(entry->transfer, status, text);
            else
                entry_settle(flow, entry);
        }
    flow->offers = flow->announced = 0;
}
