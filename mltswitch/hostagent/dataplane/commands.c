/* What other threads ask of the core. They check it, allocate what it needs and queue it; the core does it in its turn.
 *
 * The lock is held for moments only: no call to the kernel and no allocation of size happens under it.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "internal.h"

enum { DEFAULT_ACK_PACKETS = 16 };
static const int64_t DEFAULT_SILENCE_NS = 10 * SECOND;
static const int64_t LEAST_ACK_DELAY_NS = 200 * MICROSECOND;

bool commands_queue(struct shared *shared, struct command *command)
{
    bool is_first = !shared->first;
    command->next = NULL;
    *shared->last = command;
    shared->last = &command->next;
    return is_first;
}

struct command *command_new(enum command_kind kind)
{
    struct command *command = calloc(1, sizeof *command);
    if (command)
        command->kind = kind;
    return command;
}

/* Under the lock; a token's first 16 bits are the flow's number. */
struct flow *handle_flow(const struct shared *shared, uint64_t token)
{
    uint64_t number = token >> 48;
    if (number >= shared->next_flow || !shared->flows[number] || shared->flows[number]->token != token)
        return NULL;
    return shared->flows[number];
}

/* -------------------------------------------------------------------------------------------------------- flows */

int mlt_reserve(struct mlt *core, uint64_t *token)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    uint64_t secret = 0;
    if (core->is_seeded)
        secret = random_next(&core->token_random);
    else if (getrandom(&secret, sizeof secret, 0) != sizeof secret)
        return MLT_SYSTEM;
    int status = MLT_FULL;
    pthread_mutex_lock(&shared->lock);
    /* The number after the last one given: a token that is over is not soon given again. */
    for (uint32_t tried = 0; tried < MLT_MOST_FLOWS && status; tried++) {
        uint32_t number = shared->flow_cursor;
        shared->flow_cursor = (number + 1) % MLT_MOST_FLOWS;
        if (shared->tokens[number])
            continue;
        if (number >= shared->next_flow)
            shared->next_flow = number + 1;
        *token = shared->tokens[number] = (uint64_t)number << 48 | (secret >> 16) | 1;
        status = MLT_OK;
    }
    pthread_mutex_unlock(&shared->lock);
    return status;
}

static bool are_usable(const struct mlt *core, const struct mlt_flow_options *options, const struct mlt_path *paths,
                       int count)
{
    if (count < 1 || count > MLT_MOST_PATHS || options->send_datagram_bytes < MLT_LEAST_DATAGRAM_BYTES
        || options->send_datagram_bytes > MLT_MOST_DATAGRAM_BYTES
        || options->receive_datagram_bytes < MLT_LEAST_DATAGRAM_BYTES
        || options->receive_datagram_bytes > MLT_MOST_DATAGRAM_BYTES || options->repair > MLT_AT_ONCE)
        return false;
    for (int number = 0; number < count; number++) {
        const struct mlt_path *path = &paths[number];
        if (path->socket < 0 || path->socket >= MLT_MOST_SOCKETS
            || (core->shared.is_threaded && !sockets_has(core, path->socket, path->frame_bytes > 0)))
            return false;
        if (path->frame_bytes
            && (path->frame_bytes < ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES || path->frame_bytes > MLT_FRAME_BYTES
                || path->frame[path->frame_bytes - UDP_BYTES - IPV4_BYTES] != IPV4_START))
            return false;
    }
    return true;
}

static struct flow *flow_new(struct mlt *core, uint64_t token, const struct mlt_flow_options *options,
                             const struct mlt_path *paths, int count)
{
    size_t bytes = sizeof(struct flow) + (size_t)count * sizeof(struct path);
    struct flow *flow = aligned_alloc(_Alignof(struct flow), (bytes / _Alignof(struct flow) + 1) * _Alignof(struct flow));
    if (!flow)
        return NULL;
    memset(flow, 0, bytes);
    flow->paths = (struct path *)(flow + 1);
    flow->core = core;
    flow->token = token;
    flow->peer_token = options->peer_token;
    flow->options = *options;
    if (!flow->options.silence_ns)
        flow->options.silence_ns = DEFAULT_SILENCE_NS;
    if (flow->options.ack_delay_ns < LEAST_ACK_DELAY_NS)
        flow->options.ack_delay_ns = LEAST_ACK_DELAY_NS;
    if (!flow->options.ack_packets)
        flow->options.ack_packets = DEFAULT_ACK_PACKETS;
    flow->overhead_bytes = HEADER_BYTES + (options->has_keys ? TAG_BYTES : 0);
    flow->send_body_bytes = options->send_datagram_bytes - flow->overhead_bytes;
    flow->receive_body_bytes = options->receive_datagram_bytes - flow->overhead_bytes;
    flow->frame_bytes = flow->send_body_bytes < FRAME_BYTES ? flow->send_body_bytes : FRAME_BYTES;
    if (options->has_keys) {
        gmac_init(&flow->send_gmac, options->send_key);
        gmac_init(&flow->receive_gmac, options->receive_key);
    }
    flow->path_count = count;
    for (int number = 0; number < count; number++) {
        struct path *path = &flow->paths[number];
        path->socket = paths[number].socket;
        path->weight = paths[number].weight;
        path->frame_bytes = paths[number].frame_bytes;
        memcpy(path->frame, paths[number].frame, sizeof path->frame);
        path->can_join = !path->frame_bytes && !(core->cannot_segment >> path->socket & 1);
        path->name_bytes = sizeof(struct sockaddr_in);
        memcpy(path->name, paths[number].address, sizeof path->name);
        sa_family_t family;
        memcpy(&family, path->name, sizeof family);
        if (family == AF_INET6)
            path->name_bytes = sizeof(struct sockaddr_in6);
    }
    controller_init(&flow->controller, &options->rate);
    link_init(&flow->sending, NULL);
    link_init(&flow->critical, NULL);
    link_init(&flow->lost[NORMAL], NULL);
    link_init(&flow->lost[CRITICAL], NULL);
    link_init(&flow->early_ends, NULL);
    link_init(&flow->active, flow);
    link_init(&flow->replying, flow);
    link_init(&flow->receiving, flow);
    link_init(&flow->credit.receives, NULL);
    flow->credit.losing.kept = 1;
    for (int kind = 0; kind < FLOW_TIMERS; kind++)
        timer_init(&flow->timers[kind], (enum timer_kind)kind, flow);
    flow->inbox.last = &flow->inbox.first;
    flow->user_credit = MLT_USER_CREDIT_BYTES;
    if (!control_open(flow) || !departures_open(flow)) {
        departures_free(flow);
        free(flow->control.memory);
        free(flow);
        return NULL;
    }
    return flow;
}

static void messages_free(struct user_queue *queue_)
{
    for (struct user_message *message = queue_->first, *next; message; message = next) {
        next = message->next;
        free(message);
    }
    queue_->first = NULL;
    queue_->last = &queue_->first;
}

/* By the core, or before it knows the flow. */
static void flow_free(struct flow *flow)
{
    struct mlt *core = flow->core;
    for (int kind = 0; kind < FLOW_TIMERS; kind++)
        timer_cancel(core, &flow->timers[kind]);
    link_remove(&flow->active);
    link_remove(&flow->replying);
    messages_free(&flow->control.user);
    messages_free(&flow->inbox);
    entry_table_free(flow);
    free(flow->control.memory);
    departures_free(flow);
    /* Keys do not stay in memory that others get. */
    memset(flow, 0, sizeof *flow);
    __asm__ volatile("" : : "r"(flow) : "memory");
    free(flow);
}

int mlt_open(struct mlt *core, uint64_t token, const struct mlt_flow_options *options, const struct mlt_path *paths,
             int count)
{
    struct shared *shared = &core->shared;
    uint64_t number = token >> 48;
    if (handle_check(core))
        return MLT_DEAD;
    if (!are_usable(core, options, paths, count))
        return MLT_INVALID;
    struct flow *flow = flow_new(core, token, options, paths, count);
    struct command *command = command_new(COMMAND_OPEN);
    if (!flow || !command) {
        if (flow)
            flow_free(flow);
        free(command);
        return MLT_NO_MEMORY;
    }
    command->flow = flow;
    pthread_mutex_lock(&shared->lock);
    int status = MLT_OK;
    if (number >= shared->next_flow || shared->tokens[number] != token || shared->is_dead)
        status = MLT_UNKNOWN;
    else if (shared->flows[number])
        status = MLT_BUSY;
    bool is_first = false;
    if (!status) {
        shared->flows[number] = flow;
        is_first = commands_queue(shared, command);
    }
    pthread_mutex_unlock(&shared->lock);
    sockets_wake(core, is_first);
    if (status) {
        flow_free(flow);
        free(command);
    }
    return status;
}

/* Queues a command for a flow, or for the port of all; it is freed where there is no such flow. */
static int ask_flow(struct mlt *core, uint64_t token, struct command *command)
{
    struct shared *shared = &core->shared;
    if (!command)
        return MLT_NO_MEMORY;
    int status = handle_check(core);
    bool is_first = false;
    if (!status) {
        pthread_mutex_lock(&shared->lock);
        command->flow = handle_flow(shared, token);
        if (!command->flow && command->kind != COMMAND_SHARE) {
            status = MLT_UNKNOWN;
        } else {
            if (command->kind == COMMAND_CLOSE)
                shared->flows[token >> 48] = NULL;
            is_first = commands_queue(shared, command);
        }
        pthread_mutex_unlock(&shared->lock);
    }
    sockets_wake(core, is_first);
    if (status)
        free(command);
    return status;
}

int mlt_close(struct mlt *core, uint64_t token)
{
    struct shared *shared = &core->shared;
    uint64_t number = token >> 48;
    if (handle_check(core))
        return MLT_DEAD;
    pthread_mutex_lock(&shared->lock);
    bool is_reserved = number < shared->next_flow && shared->tokens[number] == token && !shared->flows[number];
    if (is_reserved)
        shared->tokens[number] = 0;
    pthread_mutex_unlock(&shared->lock);
    if (is_reserved)
        return MLT_OK;
    return ask_flow(core, token, command_new(COMMAND_CLOSE));
}

int mlt_set_weights(struct mlt *core, uint64_t token, const uint16_t *weights, int count)
{
    if (count < 1 || count > MLT_MOST_PATHS)
        return MLT_INVALID;
    struct command *command = command_new(COMMAND_WEIGHTS);
    if (command) {
        command->count = count;
        memcpy(command->weights, weights, (size_t)count * sizeof *weights);
    }
    return ask_flow(core, token, command);
}

int mlt_set_rate(struct mlt *core, uint64_t token, const struct mlt_rate_options *options)
{
    struct command *command = command_new(COMMAND_RATE);
    if (command)
        command->rate = *options;
    return ask_flow(core, token, command);
}

int mlt_set_share(struct mlt *core, double share)
{
    if (!(share > 0 && share <= 1))
        return MLT_INVALID;
    struct command *command = command_new(COMMAND_SHARE);
    if (command)
        command->share = share;
    return ask_flow(core, 0, command);
}

/* ----------------------------------------------------------------------------------------------- small messages */

int mlt_send_message(struct mlt *core, uint64_t token, const void *bytes, int length)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    if (length < 1 || length > MLT_MOST_USER_BYTES)
        return MLT_INVALID;
    struct user_message *message = malloc(sizeof *message + (size_t)length);
    struct command *command = command_new(COMMAND_MESSAGE);
    int status = message && command ? MLT_OK : MLT_NO_MEMORY;
    bool is_first = false;
    if (!status) {
        message->length = length;
        memcpy(message->bytes, bytes, (size_t)length);
        command->message = message;
        uint64_t cost = (uint64_t)length + MESSAGE_HEADER_BYTES;
        pthread_mutex_lock(&shared->lock);
        command->flow = handle_flow(shared, token);
        if (!command->flow)
            status = MLT_UNKNOWN;
        else if ((uint32_t)length + MESSAGE_HEADER_BYTES > command->flow->frame_bytes)
            status = MLT_INVALID;
        else if (command->flow->user_sent + cost > command->flow->user_credit)
            status = MLT_FULL;
        if (!status) {
            command->flow->user_sent += cost;
            is_first = commands_queue(shared, command);
        }
        pthread_mutex_unlock(&shared->lock);
    }
    sockets_wake(core, is_first);
    if (status) {
        free(message);
        free(command);
    }
    return status;
}

int mlt_take_message(struct mlt *core, uint64_t token, void *bytes, int capacity)
{
    struct shared *shared = &core->shared;
    if (handle_check(core))
        return MLT_DEAD;
    struct user_message *message = NULL;
    int status = 0;
    bool must_grant = false;
    pthread_mutex_lock(&shared->lock);
    struct flow *flow = handle_flow(shared, token);
    if (!flow) {
        status = MLT_UNKNOWN;
    } else if (flow->inbox.first && flow->inbox.first->length > capacity) {
        status = MLT_FULL;
    } else if (flow->inbox.first) {
        message = flow->inbox.first;
        flow->inbox.first = message->next;
        if (!flow->inbox.first)
            flow->inbox.last = &flow->inbox.first;
        status = message->length;
        flow->user_taken += (uint64_t)message->length + MESSAGE_HEADER_BYTES;
        must_grant = flow->user_taken - flow->user_told >= MLT_USER_CREDIT_BYTES / 4;
        if (must_grant)
            flow->user_told = flow->user_taken;
    }
    pthread_mutex_unlock(&shared->lock);
    if (message)
        memcpy(bytes, message->bytes, (size_t)message->length);
    free(message);
    if (must_grant)
        ask_flow(core, token, command_new(COMMAND_TAKEN));
    return status;
}

/* ------------------------------------------------------------------------------------------------- the core's side */

static void open_flow(struct mlt *core, struct flow *flow)
{
    flow->credit_ns = flow->heard_ns = core->now_ns;
    flow->credit_bytes = MLT_WINDOW_BYTES;
    for (int path = 0; path < flow->path_count; path++)
        flow->paths[path].heard_ns = core->now_ns;
    core->flows[flow->token >> 48] = flow;
    if (flow->options.has_credit)
        port_told(&core->port, &flow->options);
}

static void close_flow(struct mlt *core, struct flow *flow)
{
    struct shared *shared = &core->shared;
    flow_fail(flow, MLT_FLOW_CLOSED, "the flow was closed");
    gather_forget(flow);
    batch_forget(core, NULL, flow);
    core->flows[flow->token >> 48] = NULL;
    pthread_mutex_lock(&shared->lock);
    if (shared->tokens[flow->token >> 48] == flow->token) /* it may have been closed twice, and be another's by now */
        shared->tokens[flow->token >> 48] = 0;
    pthread_mutex_unlock(&shared->lock);
    flow_free(flow);
}

static void set_weights(struct flow *flow, const struct command *command)
{
    for (int path = 0; path < command->count && path < flow->path_count; path++) {
        flow->paths[path].weight = command->weights[path];
        flow->paths[path].turn = 0;
    }
    flow_activate(flow);
}

static void say_message(struct flow *flow, struct user_message *message)
{
    message->next = NULL;
    *flow->control.user.last = message;
    flow->control.user.last = &message->next;
    flow_reply(flow);
}

static void change_transfer(struct transfer *transfer, const struct command *command)
{
    if (!transfer->is_open)
        return;
    if (command->kind == COMMAND_FINISH) {
        completion_end(transfer, MLT_TAKEN);
    } else if (command->kind == COMMAND_TOS) {
        transfer->send.tos_important = command->tos_important;
        transfer->send.tos_unimportant = command->tos_unimportant;
    } else {
        transfer_cancel(transfer, MLT_CANCELLED, command->text);
    }
}

static void command_run(struct mlt *core, struct command *command)
{
    struct flow *flow = command->flow;
    switch (command->kind) {
    case COMMAND_OPEN:
        open_flow(core, flow);
        break;
    case COMMAND_CLOSE:
        close_flow(core, flow);
        break;
    case COMMAND_POST:
        transfers_post(core, command->transfers, command->count);
        free(command->transfers);
        break;
    case COMMAND_FINISH:
    case COMMAND_CANCEL:
    case COMMAND_TOS:
        change_transfer(command->transfer, command);
        transfer_unhold(core, command->transfer);
        break;
    case COMMAND_WEIGHTS:
        set_weights(flow, command);
        break;
    case COMMAND_RATE:
        controller_set(&flow->controller, &command->rate);
        timer_cancel(core, &flow->timers[TIMER_PACE]);
        flow_activate(flow);
        break;
    case COMMAND_SHARE:
        core->port.allowed = command->share;
        core->port.is_dirty = true;
        break;
    case COMMAND_MESSAGE:
        say_message(flow, command->message);
        break;
    case COMMAND_TAKEN:
        flow->control.says_credit = true;
        flow_reply(flow);
        break;
    }
}

void commands_run(struct mlt *core)
{
    struct shared *shared = &core->shared;
    pthread_mutex_lock(&shared->lock);
    struct command *command = shared->first;
    shared->first = NULL;
    shared->last = &shared->first;
    pthread_mutex_unlock(&shared->lock);
    while (command) {
        struct command *next = command->next;
        command_run(core, command);
        free(command);
        command = next;
    }
}
