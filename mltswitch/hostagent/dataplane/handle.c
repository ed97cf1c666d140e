/* The handle, and what any thread may do with it at once: create, wait, look, take events; and virtual time's door.
 *
 * What has to be done by the core is a command: see commands.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

enum { MOST_EVENTS = 1 << 20 };

static int shared_open(struct shared *shared)
{
    pthread_condattr_t attributes;
    pthread_mutex_init(&shared->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&shared->done, &attributes);
    pthread_condattr_destroy(&attributes);
    shared->last = &shared->first;
    shared->event_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    shared->wake_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (shared->event_descriptor < 0 || shared->wake_descriptor < 0)
        return MLT_SYSTEM;
    /* Pages of these that nobody touches cost nothing. */
    shared->flows = calloc(MLT_MOST_FLOWS, sizeof *shared->flows);
    shared->tokens = calloc(MLT_MOST_FLOWS, sizeof *shared->tokens);
    shared->slots = calloc(shared->slot_count, sizeof *shared->slots);
    shared->generations = calloc(shared->slot_count, sizeof *shared->generations);
    shared->free_slots = calloc(shared->slot_count, sizeof *shared->free_slots);
    shared->events = calloc(shared->event_room, sizeof *shared->events);
    return shared->flows && shared->tokens && shared->slots && shared->generations && shared->free_slots
            && shared->events
        ? MLT_OK
        : MLT_NO_MEMORY;
}

struct mlt *mlt_create(const struct mlt_options *options)
{
    if (options->most_transfers > MLT_MOST_TRANSFERS || options->events > MOST_EVENTS)
        return NULL;
    struct mlt *core = calloc(1, sizeof *core);
    if (!core)
        return NULL;
    struct mlt_options chosen = *options;
    if (!chosen.seed && getrandom(&chosen.seed, sizeof chosen.seed, 0) != sizeof chosen.seed)
        chosen.seed = (uint64_t)(uintptr_t)core;
    core->is_seeded = options->seed != 0;
    core_init(core, &chosen);
    core->emit = memory_emit;
    pthread_mutex_init(&core->turn, NULL);
    core->process = getpid();
    core->shared.event_descriptor = core->shared.wake_descriptor = -1;
    core->flows = calloc(MLT_MOST_FLOWS, sizeof *core->flows);
    if (shared_open(&core->shared) != MLT_OK || !core->flows) {
        mlt_destroy(core);
        return NULL;
    }
    return core;
}

void mlt_destroy(struct mlt *core)
{
    if (!core)
        return;
    struct shared *shared = &core->shared;
    if (core->process == getpid()) {
        mlt_stop(core);
        if (shared->flows && shared->tokens && core->flows)
            for (uint32_t number = 0; number < shared->next_flow; number++)
                if (shared->flows[number])
                    mlt_close(core, shared->flows[number]->token);
        if (core->flows)
            commands_run(core);
        for (uint32_t slot = 0; shared->slots && slot < shared->next_slot; slot++)
            if (shared->slots[slot])
                transfer_unhold(core, shared->slots[slot]);
    }
    sockets_free(core);
    if (shared->event_descriptor >= 0)
        close(shared->event_descriptor);
    if (shared->wake_descriptor >= 0)
        close(shared->wake_descriptor);
    pthread_cond_destroy(&shared->done);
    pthread_mutex_destroy(&shared->lock);
    pthread_mutex_destroy(&core->turn);
    free(shared->flows);
    free(shared->tokens);
    free(shared->slots);
    free(shared->generations);
    free(shared->free_slots);
    free(shared->events);
    free(core->flows);
    free(core->timers.heap);
    free(core->output);
    free(core);
}

void mlt_forked(struct mlt *core)
{
    if (core->process == getpid())
        return;
    sockets_free(core);
    close(core->shared.event_descriptor);
    close(core->shared.wake_descriptor);
    core->shared.event_descriptor = core->shared.wake_descriptor = -1;
}

int handle_check(const struct mlt *core)
{
    return core->process == getpid() ? MLT_OK : MLT_DEAD;
}

void handle_signal(int descriptor)
{
    uint64_t one = 1;
    ssize_t written = write(descriptor, &one, sizeof one);
    (void)written; /* it fails only where it is readable already */
}

/* ---------------------------------------------------------------------------------------------------- results */

/* Under the lock. */
struct transfer *handle_transfer(const struct shared *shared, uint64_t id)
{
    uint32_t slot = (uint32_t)id;
    if (slot >= shared->next_slot || shared->generations[slot] != id >> 32)
        return NULL;
    return shared->slots[slot];
}

static struct timespec after(int64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ns / SECOND;
    until.tv_nsec += timeout_ns % SECOND;
    if (until.tv_nsec >= SECOND) {
        until.tv_sec++;
        until.tv_nsec -= SECOND;
    }
    return until;
}

int mlt_wait(struct mlt *core, uint64_t id, int64_t timeout_ns, struct mlt_result *result)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    struct timespec until = after(timeout_ns > 0 ? timeout_ns : 0);
    int status = MLT_PENDING;
    pthread_mutex_lock(&shared->lock);
    for (;;) {
        const struct transfer *transfer = handle_transfer(shared, id);
        if (!transfer) {
            status = MLT_UNKNOWN;
            break;
        }
        if (transfer->is_done)
            status = MLT_OK;
        if (transfer->is_done || timeout_ns == 0 || !shared->is_threaded) {
            if (result)
                *result = transfer->result;
            break;
        }
        int error = timeout_ns < 0 ? pthread_cond_wait(&shared->done, &shared->lock)
                                   : pthread_cond_timedwait(&shared->done, &shared->lock, &until);
        if (error)
            timeout_ns = 0;
    }
    pthread_mutex_unlock(&shared->lock);
    return status;
}

int mlt_result(struct mlt *core, uint64_t id, struct mlt_result *result)
{
    int status = mlt_wait(core, id, 0, result);
    return status == MLT_PENDING ? MLT_OK : status;
}

int mlt_notify(struct mlt *core, uint64_t id)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    pthread_mutex_lock(&shared->lock);
    struct transfer *transfer = handle_transfer(shared, id);
    int status = !transfer ? MLT_UNKNOWN : transfer->is_done ? MLT_OK : MLT_PENDING;
    if (status == MLT_PENDING)
        transfer->notify = true;
    pthread_mutex_unlock(&shared->lock);
    return status;
}

int mlt_release(struct mlt *core, uint64_t id)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    pthread_mutex_lock(&shared->lock);
    struct transfer *transfer = handle_transfer(shared, id);
    int status = !transfer ? MLT_UNKNOWN : transfer->is_done ? MLT_OK : MLT_BUSY;
    if (!status) {
        shared->slots[transfer->slot] = NULL;
        shared->generations[transfer->slot]++;
        shared->free_slots[shared->free_count++] = transfer->slot;
    }
    pthread_mutex_unlock(&shared->lock);
    if (!status)
        transfer_unhold(core, transfer);
    return status;
}

void transfer_hold(struct mlt *core, struct transfer *transfer)
{
    pthread_mutex_lock(&core->shared.lock);
    transfer->holders++;
    pthread_mutex_unlock(&core->shared.lock);
}

void transfer_unhold(struct mlt *core, struct transfer *transfer)
{
    pthread_mutex_lock(&core->shared.lock);
    bool is_last = --transfer->holders == 0;
    pthread_mutex_unlock(&core->shared.lock);
    if (is_last)
        free(transfer);
}

/* ----------------------------------------------------------------------------------------------------- events */

int mlt_event_descriptor(struct mlt *core)
{
    return core->shared.event_descriptor;
}

int mlt_next_event(struct mlt *core, struct mlt_event *event)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    pthread_mutex_lock(&shared->lock);
    bool is_there = shared->event_count > 0;
    if (is_there) {
        *event = shared->events[shared->event_first];
        shared->event_first = (shared->event_first + 1) % shared->event_room;
        shared->event_count--;
    }
    uint64_t number;
    if (shared->event_count == 0)
        shared->event_first = 0; /* pages that nobody has needed stay untouched */
    if (shared->event_count == 0 && read(shared->event_descriptor, &number, sizeof number) < 0)
        (void)errno; /* it was not readable */
    pthread_mutex_unlock(&shared->lock);
    return is_there;
}

void core_event(struct mlt *core, const struct mlt_event *event)
{
    struct shared *shared = &core->shared;
    pthread_mutex_lock(&shared->lock);
    bool is_first = shared->event_count == 0;
    if (shared->event_count == shared->event_room)
        core->counters.lost_events++;
    else
        shared->events[(shared->event_first + shared->event_count++) % shared->event_room] = *event;
    pthread_mutex_unlock(&shared->lock);
    if (is_first)
        handle_signal(shared->event_descriptor);
}

int mlt_counters(struct mlt *core, struct mlt_counters *counters)
{
    *counters = core->counters;
    return handle_check(core);
}

int mlt_port(struct mlt *core, struct mlt_port *port)
{
    *port = port_state(&core->port);
    return handle_check(core);
}

int mlt_flow_statistics(struct mlt *core, uint64_t token, struct mlt_flow_statistics *statistics)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    pthread_mutex_lock(&shared->lock);
    const struct flow *flow = handle_flow(shared, token);
    if (flow) {
        *statistics = flow->statistics;
        statistics->rate_bps = flow->controller.rate_bps;
        statistics->window_bytes = flow->controller.window_bytes;
        statistics->rtt_ns = flow_rtt(flow);
        statistics->base_rtt_ns = flow->controller.base_rtt_ns;
        statistics->in_flight_bytes = flow->in_flight_bytes;
        statistics->open_transfers = flow->open;
        const struct control *control = &flow->control;
        statistics->unsaid = control->next - control->unacknowledged + link_is_in(&control->talk)
                             + (control->user.first != NULL);
        statistics->paths = (uint32_t)flow->path_count;
        for (int number = 0; number < flow->path_count; number++) {
            const struct path *path = &flow->paths[number];
            statistics->path[number] = (struct mlt_path_statistics){
                path->sent_packets, path->sent_bytes, path->acknowledged, path->lost, path->marked,
                path->received, path->received_marked, path->rtt_ns, path->least_rtt_ns, path->heard_ns,
                path->weight, path->state, path->can_join && core->now_ns >= path->join_ns};
        }
    }
    pthread_mutex_unlock(&shared->lock);
    return flow ? MLT_OK : MLT_UNKNOWN;
}

/* ----------------------------------------------------------------------------------------------- virtual time */

int mlt_feed(struct mlt *core, const void *bytes, uint32_t length, uint32_t segment_bytes, uint8_t tos,
             int64_t arrived_ns)
{
    if (core->shared.is_threaded)
        return MLT_BUSY;
    if (arrived_ns > core->now_ns)
        core->now_ns = arrived_ns;
    receive_message(core, bytes, length, segment_bytes, tos, arrived_ns);
    return MLT_OK;
}

int mlt_step(struct mlt *core, int64_t now_ns)
{
    if (core->shared.is_threaded)
        return MLT_BUSY;
    core->has_more = core_turn(core, now_ns);
    return MLT_OK;
}

int64_t mlt_next_timer(struct mlt *core)
{
    if (core->has_more || core->shared.first)
        return core->now_ns;
    return core->timers.count ? core->timers.heap[0]->at_ns : NEVER;
}
