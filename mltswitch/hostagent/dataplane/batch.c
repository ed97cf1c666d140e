/* Messages on their way out: headers and tags of a turn's packets, gathered until the kernel takes them at once.
 *
 * Elements are not copied: parts point into tensors, and what points into a tensor is dropped before its transfer ends.
 */
#include <stdlib.h>

#include "internal.h"

bool batch_has_room(const struct mlt *core, int packets, uint64_t bytes)
{
    const struct batch *batch = &core->batch;
    return batch->packets + packets <= BATCH_PACKETS && batch->count + packets <= BATCH_MESSAGES
        && batch->smalls + packets <= BATCH_MESSAGES && batch->bytes + bytes <= BATCH_BYTES
        && batch->part_count + 2 * packets + packets <= BATCH_PARTS;
}

void batch_flush(struct mlt *core)
{
    struct batch *batch = &core->batch;
    while (batch->done < batch->count) {
        int gone = core->emit(core, batch);
        if (!gone) {
            core->is_blocked = true;
            return;
        }
        batch->done += gone;
    }
    core->is_blocked = false;
    batch->count = batch->part_count = batch->packets = batch->smalls = batch->done = 0;
    batch->bytes = 0;
}

/* Messages that the kernel has not yet taken must not point into memory that is the user's again. */
void batch_forget(struct mlt *core, const struct transfer *transfer, const struct flow *flow)
{
    struct batch *batch = &core->batch;
    for (int32_t number = batch->done; number < batch->count; number++) {
        struct outgoing *message = &batch->messages[number];
        if ((transfer && message->owner == transfer) || (flow && message->flow == flow)) {
            message->parts = 0;
            message->owner = NULL;
            message->flow = NULL;
        }
    }
}

uint8_t *batch_small(struct flow *flow, uint8_t kind, int path, uint8_t tos)
{
    struct batch *batch = &flow->core->batch;
    if (batch->count >= BATCH_MESSAGES || batch->smalls >= BATCH_MESSAGES || batch->part_count >= BATCH_PARTS)
        return NULL;
    uint8_t *header = batch->small[batch->smalls++];
    memset(header, 0, HEADER_BYTES);
    header[VERSION_OFFSET] = WIRE_VERSION;
    header[KIND_OFFSET] = kind;
    header[FLAGS_OFFSET] = flow->options.has_keys ? FLAG_AUTHENTICATED : 0;
    write64(header + TOKEN_OFFSET, flow->peer_token);
    write16(header + PATH_OFFSET, (uint16_t)path);
    batch->messages[batch->count] = (struct outgoing){
        .flow = flow, .path = (uint16_t)path, .packets = 1, .tos = tos, .first_part = batch->part_count, .parts = 1};
    return header;
}

uint64_t batch_small_done(struct flow *flow, uint8_t *header, uint32_t body_bytes)
{
    struct batch *batch = &flow->core->batch;
    uint32_t bytes = HEADER_BYTES + body_bytes;
    uint64_t now = (uint64_t)flow->core->now_ns;
    flow->stamp = now > flow->stamp ? now : flow->stamp + 1;
    write64(header + SENT_OFFSET, flow->stamp);
    if (flow->options.has_keys) {
        flow_tag(&flow->send_gmac, flow->options.send_salt, header, &(struct iovec){header, bytes}, 1, header + bytes);
        bytes += TAG_BYTES;
    }
    struct outgoing *message = &batch->messages[batch->count++];
    message->bytes = message->segment_bytes = bytes;
    batch->parts[batch->part_count++] = (struct iovec){header, bytes};
    return flow->stamp;
}

/* The nonce is the direction's salt and the packet's stamp, which no other packet of the direction has. */
void flow_tag(const struct gmac *gmac, const uint8_t *salt, const uint8_t *header, const struct iovec *parts, int count,
              uint8_t *tag)
{
    uint8_t nonce[MLT_SALT_BYTES + 8];
    memcpy(nonce, salt, MLT_SALT_BYTES);
    memcpy(nonce + MLT_SALT_BYTES, header + SENT_OFFSET, 8);
    gmac_tag(gmac, nonce, parts, count, tag);
}

/* ---------------------------------------------------------------------------------------------------- memory */

static bool output_reserve(struct mlt *core, size_t more)
{
    if (core->output_first == core->output_end)
        core->output_first = core->output_end = 0;
    if (core->output_end + more <= core->output_room)
        return true;
    size_t room = core->output_room ? core->output_room : 1 << 16;
    while (core->output_end + more > room)
        room *= 2;
    uint8_t *output = realloc(core->output, room);
    if (!output)
        return false;
    core->output = output;
    core->output_room = room;
    return true;
}

int memory_emit(struct mlt *core, struct batch *batch)
{
    for (int32_t number = batch->done; number < batch->count; number++) {
        const struct outgoing *message = &batch->messages[number];
        if (!message->parts || !output_reserve(core, sizeof(struct mlt_output) + message->bytes))
            continue;
        const struct path *path = &message->flow->paths[message->path];
        struct mlt_output head = {.flow = message->flow->token, .socket = path->socket, .path = message->path,
                                  .bytes = message->bytes, .segment_bytes = message->segment_bytes,
                                  .tos = message->tos};
        memcpy(head.address, path->name, sizeof head.address);
        memcpy(core->output + core->output_end, &head, sizeof head);
        core->output_end += sizeof head;
        for (int32_t part = 0; part < message->parts; part++) {
            const struct iovec *piece = &batch->parts[message->first_part + part];
            memcpy(core->output + core->output_end, piece->iov_base, piece->iov_len);
            core->output_end += piece->iov_len;
        }
    }
    return batch->count - batch->done;
}

int mlt_take_output(struct mlt *core, struct mlt_output *output, void *bytes, uint32_t capacity)
{
    if (core->output_first == core->output_end)
        return 0;
    memcpy(output, core->output + core->output_first, sizeof *output);
    if (output->bytes > capacity)
        return MLT_FULL;
    core->output_first += sizeof *output;
    memcpy(bytes, core->output + core->output_first, output->bytes);
    core->output_first += output->bytes;
    return (int)output->bytes;
}
