/* Work requests: checked and given memory by whoever posts them, taken up by the core; and what changes them later.
 *
 * A transfer is one piece of memory, bitmaps included; nothing is allocated for it afterwards.
 */
#include <stdlib.h>

#include "internal.h"

/* A post that the core does not get. */
static void posting_free(struct command *command)
{
    for (int number = 0; command && command->transfers && number < command->count; number++)
        if (command->transfers[number]) {
            free(command->transfers[number]->spare);
            free(command->transfers[number]);
        }
    if (command)
        free(command->transfers);
    free(command);
}

/* How long packets of the flow are, and how it repairs, which does not change while it is open; 0: there is no such flow. */
static uint32_t body_bytes_of(struct mlt *core, uint64_t token, bool is_send, bool *is_repaired)
{
    pthread_mutex_lock(&core->shared.lock);
    const struct flow *flow = handle_flow(&core->shared, token);
    uint32_t bytes = !flow ? 0 : is_send ? flow->send_body_bytes : flow->receive_body_bytes;
    *is_repaired = flow && is_send && repairs_at_once(flow);
    pthread_mutex_unlock(&core->shared.lock);
    return bytes;
}

/* With what repairs at once need, for sends of flows that make them. */
static struct transfer *transfer_new(const struct layout *layout, bool is_repaired, uint64_t token, uint32_t tensor,
                                     uint32_t round)
{
    size_t bitmap_bytes = ((size_t)layout->packets + 63) / 64 * 8;
    size_t left_bytes = is_repaired ? (size_t)layout->packets * sizeof(uint32_t) : 0;
    struct transfer *transfer = calloc(1, sizeof *transfer + (is_repaired ? 3 : 2) * bitmap_bytes + left_bytes);
    if (!transfer)
        return NULL;
    transfer->spare = malloc(sizeof *transfer->spare);
    if (!transfer->spare) {
        free(transfer);
        return NULL;
    }
    transfer->layout = *layout;
    transfer->arrived = (uint8_t *)(transfer + 1);
    transfer->important = transfer->arrived + bitmap_bytes;
    if (is_repaired) {
        transfer->is_lost = transfer->important + bitmap_bytes;
        transfer->left = (uint32_t *)(void *)(transfer->is_lost + bitmap_bytes);
    }
    for (int kind = NORMAL; kind <= CRITICAL; kind++)
        link_init(&transfer->lost[kind].link, transfer);
    link_init(&transfer->gathered, transfer);
    link_init(&transfer->receiving, transfer);
    transfer->holders = 2;
    link_init(&transfer->sending, transfer);
    timer_init(&transfer->timer, TIMER_TRANSFER, transfer);
    transfer->result = (struct mlt_result){.flow = token, .status = MLT_PENDING, .tensor = tensor, .round = round,
                                           .packets = layout->packets,
                                           .elements_per_packet = layout->elements_per_packet};
    return transfer;
}

static int posting_end(struct mlt *core, struct command *command, uint64_t *ids)
{
    struct shared *shared = &core->shared;
    struct transfer **transfers = command->transfers;
    bool is_first = false;
    pthread_mutex_lock(&shared->lock);
    int status = shared->is_dead ? MLT_DEAD : MLT_OK;
    for (int number = 0; number < command->count && !status; number++) {
        transfers[number]->flow = handle_flow(shared, transfers[number]->result.flow);
        status = transfers[number]->flow ? MLT_OK : MLT_UNKNOWN;
    }
    if (!status && shared->free_count + (shared->slot_count - shared->next_slot) < (uint32_t)command->count)
        status = MLT_FULL;
    for (int number = 0; number < command->count && !status; number++) {
        uint32_t slot = shared->free_count ? shared->free_slots[--shared->free_count] : shared->next_slot++;
        transfers[number]->slot = slot;
        shared->slots[slot] = transfers[number];
        if (!shared->generations[slot])
            shared->generations[slot] = 1;
        ids[number] = transfers[number]->result.transfer = (uint64_t)shared->generations[slot] << 32 | slot;
    }
    if (!status)
        is_first = commands_queue(shared, command);
    pthread_mutex_unlock(&shared->lock);
    sockets_wake(core, is_first);
    return status;
}

static int send_new(struct mlt *core, const struct mlt_send *send, struct transfer **place)
{
    struct layout layout;
    bool is_repaired;
    uint32_t body_bytes = body_bytes_of(core, send->flow, true, &is_repaired);
    if (!body_bytes)
        return MLT_UNKNOWN;
    if (!layout_of(&layout, send->element_type, send->element_count, body_bytes) || send->importance > MLT_EDGES
        || (send->importance == MLT_BY_BITMAP && !send->important) || send->moment > MLT_FROM_FIRST_BYTE
        || send->deadline_ns < 0)
        return MLT_INVALID;
    struct transfer *transfer = *place = transfer_new(&layout, is_repaired, send->flow, send->tensor, send->round);
    if (!transfer)
        return MLT_NO_MEMORY;
    transfer->send = *send;
    transfer->memory = (uint8_t *)(uintptr_t)send->elements; /* never written to */
    transfer->notify = send->notify;
    transfer->result.is_send = 1;
    transfer->send.important = NULL;
    if (send->importance == MLT_ALL_IMPORTANT)
        send_all_important(transfer);
    if (send->importance == MLT_EDGES) {
        bit_set(transfer->important, 0);
        bit_set(transfer->important, layout.packets - 1);
    }
    if (send->importance == MLT_BY_BITMAP)
        memcpy(transfer->important, send->important, ((size_t)layout.packets + 7) / 8);
    return MLT_OK;
}

static bool is_gather(const struct mlt_policy *policy)
{
    const struct mlt_gather *gather = &policy->gather;
    return policy->stop_rule != MLT_GATHERED
        || (gather->percentage > 0 && gather->percentage <= 1 && gather->lt_ns >= MLT_LT_REGISTERED && gather->slack_ns >= 0);
}

static int receive_new(struct mlt *core, const struct mlt_receive *receive, struct transfer **place)
{
    struct layout layout;
    const struct mlt_policy *policy = &receive->policy;
    bool is_repaired;
    uint32_t body_bytes = body_bytes_of(core, receive->flow, false, &is_repaired);
    if (!body_bytes)
        return MLT_UNKNOWN;
    if (!layout_of(&layout, receive->element_type, receive->element_count, body_bytes)
        || !(policy->loss_bound >= 0 && policy->loss_bound <= 1)
        || !(policy->important_bound >= 0 && policy->important_bound <= 1) || policy->soft_ns < 0
        || policy->hard_ns < 0 || policy->moment > MLT_FROM_FIRST_BYTE || policy->stop_rule > MLT_GATHERED
        || policy->at_hard_time > MLT_TAKE || !is_gather(policy))
        return MLT_INVALID;
    struct transfer *transfer = *place = transfer_new(&layout, is_repaired, receive->flow, receive->tensor, receive->round);
    if (!transfer)
        return MLT_NO_MEMORY;
    transfer->policy = *policy;
    transfer->memory = receive->elements;
    transfer->notify = receive->notify;
    return MLT_OK;
}

/* Sends or receives: all begin, or none. */
static int post_all(struct mlt *core, const struct mlt_send *sends, const struct mlt_receive *receives, int count,
                    uint64_t *ids)
{
    if (handle_check(core))
        return MLT_DEAD;
    if (count < 1)
        return MLT_INVALID;
    struct command *command = command_new(COMMAND_POST);
    if (command) {
        command->count = count;
        command->transfers = calloc((size_t)count, sizeof *command->transfers);
    }
    int status = command && command->transfers ? MLT_OK : MLT_NO_MEMORY;
    for (int number = 0; number < count && !status; number++) {
        struct transfer **place = &command->transfers[number];
        status = sends ? send_new(core, &sends[number], place) : receive_new(core, &receives[number], place);
    }
    if (!status)
        status = posting_end(core, command, ids);
    if (status)
        posting_free(command);
    return status;
}

int mlt_post_sends(struct mlt *core, const struct mlt_send *sends, int count, uint64_t *ids)
{
    return post_all(core, sends, NULL, count, ids);
}

int mlt_post_receives(struct mlt *core, const struct mlt_receive *receives, int count, uint64_t *ids)
{
    return post_all(core, NULL, receives, count, ids);
}

/* ------------------------------------------------------------------------------------------------- posted already */

static int ask_transfer(struct mlt *core, uint64_t id, struct command *command)
{
    struct shared *shared = &core->shared;
    if (!command)
        return MLT_NO_MEMORY;
    if (handle_check(core)) {
        free(command);
        return MLT_DEAD;
    }
    pthread_mutex_lock(&shared->lock);
    struct transfer *transfer = handle_transfer(shared, id);
    int status = transfer ? MLT_OK : MLT_UNKNOWN;
    bool must_send = command->kind == COMMAND_TOS, must_receive = command->kind == COMMAND_FINISH;
    if (transfer && (transfer->result.is_send ? must_receive : must_send))
        status = MLT_INVALID;
    bool is_first = false;
    if (!status) {
        transfer->holders++;
        command->transfer = transfer;
        is_first = commands_queue(shared, command);
    }
    pthread_mutex_unlock(&shared->lock);
    sockets_wake(core, is_first);
    if (status)
        free(command);
    return status;
}

int mlt_finish(struct mlt *core, uint64_t id)
{
    return ask_transfer(core, id, command_new(COMMAND_FINISH));
}

int mlt_cancel(struct mlt *core, uint64_t id, const char *text)
{
    struct command *command = command_new(COMMAND_CANCEL);
    for (int at = 0; command && text && at < MLT_TEXT_BYTES - 1 && text[at]; at++)
        command->text[at] = text[at];
    return ask_transfer(core, id, command);
}

int mlt_set_tos(struct mlt *core, uint64_t id, uint8_t important, uint8_t unimportant)
{
    struct command *command = command_new(COMMAND_TOS);
    if (command) {
        command->tos_important = important;
        command->tos_unimportant = unimportant;
    }
    return ask_transfer(core, id, command);
}

/* ------------------------------------------------------------------------------------------------- the core's side */

static void post(struct mlt *core, struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    struct mlt_result *result = &transfer->result;
    struct entry *entry = entry_take(flow, result->tensor, result->round, result->is_send, transfer->spare);
    transfer->spare = NULL;
    transfer->entry = entry;
    transfer->is_open = true;
    result->posted_ns = core->now_ns;
    if (flow->open++ == 0) {
        flow->heard_ns = flow->looked_ns = flow->probed_ns = core->now_ns;
        timer_set(core, &flow->timers[TIMER_WATCH], core->now_ns + flow->options.silence_ns / WATCHES);
    }
    if (!entry || entry->transfer) {
        transfer_end(transfer, entry ? MLT_BUSY : MLT_NO_MEMORY, "this tensor and round is open already");
        return;
    }
    entry->transfer = transfer;
    uint8_t early_end = entry->early_end;
    entry_forget_end(flow, entry);
    if (early_end == EARLY_RECEIVE)
        transfer_end(transfer, -entry->reason, entry->text);
    else if (result->is_send)
        send_begin(transfer);
    else
        completion_begin(transfer);
}

void transfers_post(struct mlt *core, struct transfer **transfers, int32_t count)
{
    for (int32_t number = 0; number < count; number++)
        post(core, transfers[number]);
}
