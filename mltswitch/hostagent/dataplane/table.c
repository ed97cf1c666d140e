/* A flow's entries, found by (tensor, round, direction), and the layout of tensors in packets. */
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

enum { LEAST_BUCKETS = 16 };

static uint32_t bucket_of(const struct entry_table *table, uint32_t tensor, uint32_t round, bool is_send)
{
    uint64_t mixed = ((uint64_t)tensor << 33 ^ (uint64_t)round << 1 ^ is_send) * 0x9E3779B97F4A7C15ULL;
    return (uint32_t)(mixed >> 32) & (table->size - 1);
}

struct entry *entry_find(const struct flow *flow, uint32_t tensor, uint32_t round, bool is_send)
{
    if (!flow->table.size)
        return NULL;
    struct entry *entry = flow->table.buckets[bucket_of(&flow->table, tensor, round, is_send)];
    while (entry && !(entry->tensor == tensor && entry->round == round && entry->is_send == is_send))
        entry = entry->next;
    return entry;
}

static void table_grow(struct entry_table *table)
{
    struct entry_table larger = {.size = table->size ? 2 * table->size : LEAST_BUCKETS, .count = table->count};
    larger.buckets = calloc(larger.size, sizeof *larger.buckets);
    if (!larger.buckets)
        return; /* longer chains, then */
    for (uint32_t bucket = 0; bucket < table->size; bucket++)
        for (struct entry *entry = table->buckets[bucket], *next; entry; entry = next) {
            next = entry->next;
            struct entry **place = &larger.buckets[bucket_of(&larger, entry->tensor, entry->round, entry->is_send)];
            entry->next = *place;
            *place = entry;
        }
    free(table->buckets);
    *table = larger;
}

/* Finds an entry or makes one, of `spare` if that is there; null: no memory. */
struct entry *entry_take(struct flow *flow, uint32_t tensor, uint32_t round, bool is_send, struct entry *spare)
{
    struct entry *entry = entry_find(flow, tensor, round, is_send);
    if (!entry && flow->table.count == flow->table.size)
        table_grow(&flow->table);
    if (!entry && flow->table.size) {
        entry = spare ? spare : malloc(sizeof *entry);
        spare = NULL;
        if (entry) {
            *entry = (struct entry){.tensor = tensor, .round = round, .is_send = is_send};
            link_init(&entry->talk, entry);
            link_init(&entry->early, entry);
            struct entry **bucket = &flow->table.buckets[bucket_of(&flow->table, tensor, round, is_send)];
            entry->next = *bucket;
            *bucket = entry;
            flow->table.count++;
        }
    }
    free(spare);
    return entry;
}

void entry_settle(struct flow *flow, struct entry *entry)
{
    if (entry->transfer || entry->ended || entry->is_offer || entry->is_closing || entry->says || entry->early_end)
        return;
    struct entry **place = &flow->table.buckets[bucket_of(&flow->table, entry->tensor, entry->round, entry->is_send)];
    while (*place && *place != entry)
        place = &(*place)->next;
    if (!*place)
        return;
    *place = entry->next;
    flow->table.count--;
    link_remove(&entry->talk);
    if (flow->last_entry == entry)
        flow->last_entry = NULL;
    free(entry);
}

void entry_say(struct flow *flow, struct entry *entry, uint8_t message)
{
    entry->says |= message;
    link_append(&flow->control.talk, &entry->talk);
    if (message != SAY_STOPPED) /* which nobody waits for: it goes with the acknowledgement of the STOP */
        flow_reply(flow);
}

void entry_withdraw(struct flow *flow, struct entry *entry)
{
    flow->offers -= entry->is_offer;
    entry->is_offer = false;
}

/* The peer may hear of one more receive that waits for its turn. */
void entry_announced_no_more(struct flow *flow, struct entry *entry)
{
    if (!entry->has_announced)
        return;
    entry->has_announced = false;
    flow->announced--;
    if (!link_is_in(&flow->control.waiting))
        return;
    struct link *waiting = flow->control.waiting.next;
    link_remove(waiting);
    link_append(&flow->control.talk, waiting);
    flow_reply(flow);
}

void entry_reopen(struct flow *flow, struct entry *entry)
{
    if (!entry->is_closing)
        return;
    entry->is_closing = false;
    if (entry->transfer)
        entry_say(flow, entry, SAY_READY);
    else
        entry_settle(flow, entry);
}

void entry_reason(struct entry *entry, int status, const char *text)
{
    entry->reason = (uint8_t)-status;
    snprintf(entry->text, sizeof entry->text, "%s", text);
}

/* Until the other end's post meets it, or too many others have come. */
void entry_keep_end(struct flow *flow, struct entry *entry, enum early_end early_end, int status, const char *text)
{
    entry_forget_end(flow, entry);
    entry->early_end = (uint8_t)early_end;
    entry_reason(entry, status, text);
    link_append(&flow->early_ends, &entry->early);
    if (++flow->early_count <= MOST_EARLY_ENDS)
        return;
    struct entry *oldest = flow->early_ends.next->owner;
    entry_forget_end(flow, oldest);
    entry_settle(flow, oldest);
}

void entry_forget_end(struct flow *flow, struct entry *entry)
{
    flow->early_count -= entry->early_end != EARLY_NONE;
    entry->early_end = EARLY_NONE;
    link_remove(&entry->early);
}

void entry_table_free(struct flow *flow)
{
    for (uint32_t bucket = 0; bucket < flow->table.size; bucket++)
        for (struct entry *entry = flow->table.buckets[bucket], *next; entry; entry = next) {
            next = entry->next;
            free(entry);
        }
    free(flow->table.buckets);
    flow->table = (struct entry_table){0};
}

bool layout_of(struct layout *layout, uint8_t element_type, uint64_t elements, uint32_t body_bytes)
{
    uint8_t size = element_bytes(element_type);
    if (!size || body_bytes < size || !elements || elements > (uint64_t)UINT32_MAX + 1)
        return false;
    uint32_t per_packet = body_bytes / size;
    uint64_t packets = (elements + per_packet - 1) / per_packet;
    if (packets > MLT_MOST_PACKETS)
        return false;
    *layout = (struct layout){
        .elements = elements,
        .packets = (uint32_t)packets,
        .elements_per_packet = per_packet,
        .full_bytes = per_packet * size,
        .last_bytes = (uint32_t)(elements - (packets - 1) * per_packet) * size,
        .element_type = element_type,
        .element_bytes = size,
    };
    return true;
}
