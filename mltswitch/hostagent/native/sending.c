/* What leaves: packets of a chunk, and the structures that sendmmsg(2) takes.
 *
 * Each function does in one pass what numpy does in a dozen (transport/packets.py, network/outgoing.py), and
 * writes the same bytes. Nothing here keeps anything, allocates, or reads the clock.
 */
#include <stdint.h>
#include <string.h>

#include "wire.h"

struct chunk {
    const uint8_t *header;     /* as all packets begin */
    const int64_t *sequences;  /* of each packet */
    const uint8_t *important;  /* of each packet */
    uint8_t *headers;          /* written, as the others are; important packets first */
    int64_t *offsets_bytes, *sizes_bytes;
    int64_t packets, important_packets, elements_per_packet, full_bytes, last_bytes, last_sequence;
};

/* libc.MESSAGE, libc.VECTOR and libc.CONTROL: struct mmsghdr, iovec, and cmsghdr with its value. */
struct message {
    int64_t name, name_length, vectors, vector_count, control, control_length, flags_and_length[2];
};

struct vector {
    int64_t base, length;
};

struct control {
    int64_t length, level_and_type, value;
};

struct outgoing {
    const uint8_t *headers, *elements, *tags; /* tags of each packet; NULL: none */
    const int64_t *offsets_bytes, *sizes_bytes; /* of each packet */
    const int64_t *starts, *paths;              /* of each burst; another start at the end */
    const uint8_t *tos;
    const int64_t *names; /* of each path that there is: where its struct sockaddr lies; 0: none */
    struct message *messages;
    struct vector *vectors;
    struct control *controls; /* of each message: traffic class, segment size */
    int64_t packets, bursts, known_paths, elements_bytes, tag_bytes, most_segments, most_payload_bytes;
};

const int64_t mlt_sending_version[3] = {1, sizeof(struct chunk), sizeof(struct outgoing)};

void mlt_chunk(const struct chunk *chunk)
{
    int64_t important = 0, other = chunk->important_packets;
    for (int64_t packet = 0; packet < chunk->packets; packet++) {
        int64_t sequence = chunk->sequences[packet];
        int is_important = chunk->important[packet] != 0, is_last = sequence == chunk->last_sequence;
        int64_t place = is_important ? important++ : other++;
        uint8_t *header = chunk->headers + place * HEADER_BYTES;
        memcpy(header, chunk->header, HEADER_BYTES);
        header[FLAGS] |= (uint8_t)((is_important ? IMPORTANT : 0) | (is_last ? LAST : 0));
        write32(header + SEQUENCE, (uint32_t)sequence);
        write32(header + ELEMENT_OFFSET, (uint32_t)(sequence * chunk->elements_per_packet));
        chunk->offsets_bytes[place] = sequence * chunk->full_bytes;
        chunk->sizes_bytes[place] = is_last ? chunk->last_bytes : chunk->full_bytes;
    }
}

/* Path and time of departure of every packet. */
void mlt_stamp(uint8_t *headers, const int64_t *starts, const int64_t *paths, int64_t bursts, uint64_t now_ns)
{
    for (int64_t burst = 0; burst < bursts; burst++)
        for (int64_t packet = starts[burst]; packet < starts[burst + 1]; packet++) {
            write16(headers + packet * HEADER_BYTES + PATH, (uint16_t)paths[burst]);
            write64(headers + packet * HEADER_BYTES + SENT, now_ns);
        }
}

/* Every burst a message. Returns 0 for bursts that are not as they should be, or that need several messages: then
 * nothing that was written means anything. */
int64_t mlt_messages(const struct outgoing *all)
{
    int64_t pieces = all->tags ? 3 : 2;
    struct vector *vector = all->vectors;
    if (all->starts[0] != 0 || all->starts[all->bursts] != all->packets)
        return 0;
    for (int64_t burst = 0; burst < all->bursts; burst++) {
        struct message *message = all->messages + burst;
        struct control *controls = all->controls + 2 * burst;
        int64_t first = all->starts[burst], end = all->starts[burst + 1], path = all->paths[burst];
        if (first < 0 || first >= end || end > all->packets || end - first > all->most_segments || path < 0
            || path >= all->known_paths || !all->names[path])
            return 0;
        if (all->sizes_bytes[first] < 0 || all->sizes_bytes[first] > all->most_payload_bytes)
            return 0;
        int64_t segment_bytes = HEADER_BYTES + all->sizes_bytes[first] + all->tag_bytes;
        if ((end - first) * segment_bytes > all->most_payload_bytes)
            return 0;
        message->name = all->names[path];
        message->vectors = (int64_t)(intptr_t)vector;
        message->vector_count = (end - first) * pieces;
        message->control_length = (end - first > 1 ? 2 : 1) * (int64_t)sizeof *controls;
        memcpy(&controls[0].value, &all->tos[burst], 1);
        uint16_t segment = (uint16_t)segment_bytes;
        memcpy(&controls[1].value, &segment, sizeof segment);
        for (int64_t packet = first; packet < end; packet++) {
            int64_t offset_bytes = all->offsets_bytes[packet], size_bytes = all->sizes_bytes[packet];
            if (offset_bytes < 0 || size_bytes < 0 || size_bytes > all->elements_bytes - offset_bytes)
                return 0;
            *vector++ = (struct vector){(int64_t)(intptr_t)(all->headers + packet * HEADER_BYTES), HEADER_BYTES};
            *vector++ = (struct vector){(int64_t)(intptr_t)(all->elements + offset_bytes), size_bytes};
            if (all->tags)
                *vector++ = (struct vector){(int64_t)(intptr_t)(all->tags + packet * all->tag_bytes), all->tag_bytes};
        }
    }
    return 1;
}
