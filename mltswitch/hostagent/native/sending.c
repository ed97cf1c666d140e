/* What leaves: packets of a chunk, and the structures that sendmmsg(2) takes.
 *
 * Each function that sends nothing does in one pass what numpy does in a dozen (transport/packets.py,
 * network/outgoing.py), and writes the same bytes. Nothing here keeps anything, allocates, or reads the clock.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "wire.h"

struct chunk {
    const uint8_t *header;     /* as all packets begin */
    const int64_t *sequences;  /* of each packet */
    const uint8_t *important;  /* of each packet */
    uint8_t *headers;          /* written, as the others are, in the order in which the packets leave */
    int64_t *offsets_bytes, *sizes_bytes;
    int64_t *starts, *burst_bytes; /* of each burst; another start at the end */
    uint8_t *tos;                  /* of each burst */
    int64_t packets, mixed_packets, important_packets, burst_packets, overhead_bytes;
    int64_t bursts; /* of both kinds */
    int64_t tos_of_kind[2]; /* of packets that are not important, and of those that are */
    int64_t elements_per_packet, full_bytes, last_bytes, last_sequence;
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

const int64_t mlt_sending_version[3] = {5, sizeof(struct chunk), sizeof(struct outgoing)};

/* A burst of a kind: where its next packet goes, and how many may follow. */
struct open_burst {
    int64_t number, place, room;
};

/* Where the next burst begins. */
struct next_burst {
    int64_t number, place;
};

/* A burst begins at the first packet that has none, and takes the next ones of its kind. Of those that begin behind the
 * mixed packets, the important ones leave before the others. */
void mlt_chunk(const struct chunk *chunk)
{
    struct open_burst open[2] = {{0}, {0}};
    struct next_burst mixed = {0, 0}, apart[2], *next[2] = {&mixed, &mixed};
    int64_t left[2] = {chunk->packets - chunk->important_packets, chunk->important_packets};
    for (int64_t packet = 0; packet < chunk->packets; packet++) {
        if (packet == chunk->mixed_packets) {
            int64_t bursts = (left[1] + chunk->burst_packets - 1) / chunk->burst_packets;
            apart[1] = mixed;
            apart[0] = (struct next_burst){mixed.number + bursts, mixed.place + left[1]};
            next[0] = &apart[0];
            next[1] = &apart[1];
        }
        int64_t sequence = chunk->sequences[packet];
        int kind = chunk->important[packet] != 0, is_last = sequence == chunk->last_sequence;
        struct open_burst *burst = &open[kind];
        if (!burst->room) {
            int64_t length = left[kind] < chunk->burst_packets ? left[kind] : chunk->burst_packets;
            *burst = (struct open_burst){next[kind]->number++, next[kind]->place, length};
            next[kind]->place += length;
            left[kind] -= length;
            chunk->starts[burst->number] = burst->place;
            chunk->burst_bytes[burst->number] = length * chunk->overhead_bytes;
            chunk->tos[burst->number] = (uint8_t)chunk->tos_of_kind[kind];
        }
        int64_t place = burst->place++, size_bytes = is_last ? chunk->last_bytes : chunk->full_bytes;
        burst->room--;
        uint8_t *header = chunk->headers + place * HEADER_BYTES;
        memcpy(header, chunk->header, HEADER_BYTES);
        header[FLAGS] |= (uint8_t)((kind ? IMPORTANT : 0) | (is_last ? LAST : 0));
        write32(header + SEQUENCE, (uint32_t)sequence);
        write32(header + ELEMENT_OFFSET, (uint32_t)(sequence * chunk->elements_per_packet));
        chunk->offsets_bytes[place] = sequence * chunk->full_bytes;
        chunk->sizes_bytes[place] = size_bytes;
        chunk->burst_bytes[burst->number] += size_bytes;
    }
    chunk->starts[chunk->bursts] = chunk->packets;
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

enum {
    GROUP_BYTES = 64 << 10,  /* of messages of one system call, about; read ahead may be some times as much */
    LONGEST_BYTES = 4096,    /* of packets that are read ahead: longer ones come at that speed on their own */
    LONG_BYTES = 16 << 10,   /* of a burst without gaps: it comes at that speed, too */
    MOST_SPAN_RATIO = 4,     /* of a burst that is read ahead: from its first byte to its last, over its length */
    CACHE_LINE_BYTES = 64,
};

/* Elements of a message: from where to where they lie in the tensor, and how many bytes they are if all packets are as
 * long as the first. */
struct extent {
    const uint8_t *begin, *end;
    int64_t size_bytes, packet_bytes;
};

static struct extent extent_of(const struct message *message, int64_t pieces)
{
    const struct vector *first = (const struct vector *)(intptr_t)message->vectors + 1;
    const struct vector *last = first + message->vector_count - pieces;
    return (struct extent){(const uint8_t *)(intptr_t)first->base,
                           (const uint8_t *)(intptr_t)last->base + last->length,
                           message->vector_count / pieces * first->length, first->length};
}

/* Bursts of both kinds take turns in picking their packets from one stretch of the tensor, and nobody but them knows
 * where the next one lies; with packets that leave one by one the kernel does too much else in between. What is read in
 * order, once, before the kernel copies it, comes at the memory's full speed. Returns up to where it was read. */
static const uint8_t *read_ahead(struct extent extent, const uint8_t *read_to)
{
    int64_t span_bytes = extent.end - extent.begin;
    int is_gapless = span_bytes <= extent.size_bytes;
    if (extent.packet_bytes > LONGEST_BYTES || (is_gapless && extent.size_bytes >= LONG_BYTES)
        || span_bytes > MOST_SPAN_RATIO * extent.size_bytes)
        return read_to;
    const uint8_t *from = read_to > extent.begin ? read_to : extent.begin;
    for (const volatile uint8_t *at = from; at < extent.end; at += CACHE_LINE_BYTES)
        (void)*at;
    return from > extent.end ? from : extent.end;
}

/* sendmmsg(2) without waiting, in groups that a cache holds: how many messages were sent, or the negative errno where
 * the first could not be sent. Each packet is `pieces` vectors, of which the second is in the tensor. */
int64_t mlt_send(int descriptor, struct message *messages, int64_t count, int64_t pieces)
{
    const uint8_t *read_to = NULL;
    int64_t sent = 0;
    while (sent < count) {
        int64_t end = sent, group_bytes = 0;
        while (end < count && group_bytes < GROUP_BYTES) {
            struct extent extent = extent_of(messages + end++, pieces);
            read_to = read_ahead(extent, read_to);
            group_bytes += extent.size_bytes;
        }
        int done = sendmmsg(descriptor, (struct mmsghdr *)(messages + sent), (unsigned)(end - sent), MSG_DONTWAIT);
        if (done < 0)
            return sent ? sent : -errno;
        sent += done;
        if (sent < end)
            return sent;
    }
    return sent;
}

/* Messages `first` to `end` - 1 by one socket, as far as they go. Returns how many do not; `errors` has the errno of
 * each of them. */
static int64_t send_run(int descriptor, struct message *messages, int64_t first, int64_t end, int64_t *errors)
{
    int64_t failed = 0;
    while (first < end) {
        int done = sendmmsg(descriptor, (struct mmsghdr *)(messages + first), (unsigned)(end - first), MSG_DONTWAIT);
        if (done > 0) {
            first += done;
            continue;
        }
        int error = errno;
        if (error == EINTR)
            continue;
        int is_full = error == EAGAIN || error == ENOBUFS || error == ENOMEM;
        int64_t until = is_full ? end : first + 1;
        failed += until - first;
        for (; first < until; first++)
            errors[first] = error;
    }
    return failed;
}

/* The same as mlt_send for messages of which each has its socket, by its number: they leave in their order, and those of
 * one socket that follow each other together. Returns how many could not be sent, or -1 for a socket that there is not:
 * then nothing was sent. */
int64_t mlt_send_by_socket(const int32_t *descriptors, int64_t sockets, const int64_t *socket_of,
                           struct message *messages, int64_t count, int64_t pieces, int64_t *errors)
{
    const uint8_t *read_to = NULL;
    int64_t first = 0, failed = 0, read = 0, ahead_bytes = 0;
    for (int64_t message = 0; message < count; message++)
        if (socket_of[message] < 0 || socket_of[message] >= sockets)
            return -1;
    while (first < count) {
        for (; read < count && (read <= first || ahead_bytes < GROUP_BYTES); read++) {
            struct extent extent = extent_of(messages + read, pieces);
            read_to = read_ahead(extent, read_to);
            ahead_bytes += extent.size_bytes;
        }
        int64_t end = first;
        do
            ahead_bytes -= extent_of(messages + end++, pieces).size_bytes;
        while (end < read && socket_of[end] == socket_of[first]);
        failed += send_run(descriptors[socket_of[first]], messages, first, end, errors);
        first = end;
    }
    return failed;
}
