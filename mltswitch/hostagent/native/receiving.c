/* What arrives: packets go where they belong, acknowledgements into a list.
 *
 * No function here allocates, or keeps more than its structures show; only mlt_receive asks the kernel. What a peer
 * sent is compared before it is used: a sequence number that the tensor does not have, or a body of another length,
 * writes nowhere.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "wire.h"

enum {
    MOST_EXPECTED_BYTES = 2048, /* of a longer row the rest comes on its own */
    CACHE_LINE_BYTES = 64,
};

/* Received datagrams of one length; a message is what the kernel handed over at once. */
struct grid {
    const uint8_t *first;
    const uint8_t *tos;        /* of each message */
    const int64_t *arrived_ns; /* of each message */
    int64_t messages, message_stride_bytes, message_bytes, datagram_bytes;
};

struct feedback {
    int64_t *received, *marked, *pending; /* of each path */
    uint64_t *newest_sent_ns;
    int64_t *newest_arrived_ns;
    int64_t paths;
    int64_t unknown_paths; /* counted here */
};

struct transfer {
    uint8_t common[COMMON_BYTES]; /* as its packets begin, flags apart */
    struct feedback *feedback;
    uint8_t *elements;
    uint8_t *received, *important; /* of each packet */
    int64_t *by_tos, *by_path;
    int64_t paths, packets, elements_per_packet, full_bytes, last_bytes;
    int64_t read;                                       /* the last that had packets of it; of that one: */
    int64_t different, different_important, duplicates;
    int64_t least_took_ns, most_took_ns;
};

/* What the peer of connection number so and so says of a path. */
struct answer {
    uint64_t connection, path, arrived_ns, echoed_ns, held_ns, received, marked;
};

/* Every transfer that packets may be written for, and every connection without keys. A read is what is taken in by one
 * call from outside. */
struct registry {
    struct transfer **open;    /* those that got something last come first */
    struct transfer **touched; /* by this read, in order */
    int64_t open_count, touched_count, read;
    int64_t datagrams;      /* taken in by this read */
    const uint8_t *tokens;  /* of each connection, as headers have it */
    struct answer *answers; /* of this read, in order */
    int64_t version, connections, answer_count, most_answers;
};

/* The memory of one socket's reader, a slot a message. */
struct receiver {
    struct mmsghdr *messages;          /* each with one vector, and room for control messages */
    int64_t *controls;                 /* that room, as words; zero between reads */
    uint8_t *tos;                      /* of each message, as the next two; written here */
    int64_t *segments_bytes, *arrived_ns;
    int64_t slots, words_per_message, tos_key, segment_key, time_key;
    int64_t least_messages, batch_bytes; /* of one call, about */
    int64_t most_bytes, most_messages; /* of one read, about */
    int64_t wanted;                    /* messages, of the next call: by what the last one brought */
    int64_t ahead_ns;                  /* the clock of the day before ours */
    int64_t longest_wait_ns;           /* what seems to have waited longer has arrived now */
    int64_t step_ns;                   /* by which clocks drift apart only if one is set */
    int64_t calls, received;           /* of this read: system calls, and messages */
    int64_t was_full;                  /* whether there may be more */
    int64_t newest_ns;                 /* when the last that was read had arrived */
    int64_t error;                     /* of the last call; 0: none */
};

/* What was built before this file changed must not be used: raise the first number here and in `__init__.py` with
 * every change that a caller could notice. The others tell on their own. */
const int64_t mlt_version[7] = {5,
                                sizeof(struct grid),
                                sizeof(struct feedback),
                                sizeof(struct transfer),
                                sizeof(struct answer),
                                sizeof(struct registry),
                                sizeof(struct receiver)};

/* Whether version, kind, element type, token, tensor and round are those of the transfer. */
static int is_of(const uint8_t *datagram, const struct transfer *transfer)
{
    return !memcmp(datagram, transfer->common, FLAGS)
        && !memcmp(datagram + FLAGS + 1, transfer->common + FLAGS + 1, COMMON_BYTES - FLAGS - 1);
}

static void count(struct feedback *feedback, uint16_t path, uint64_t sent_ns, int64_t arrived_ns, int is_marked)
{
    if (path >= feedback->paths) {
        feedback->unknown_paths++;
        return;
    }
    feedback->received[path]++;
    feedback->pending[path]++;
    feedback->marked[path] += is_marked;
    if (sent_ns > feedback->newest_sent_ns[path]) {
        feedback->newest_sent_ns[path] = sent_ns;
        feedback->newest_arrived_ns[path] = arrived_ns;
    }
}

static void take_in(struct transfer *transfer, const uint8_t *datagram, int64_t body_bytes, uint8_t tos)
{
    int64_t sequence = word32(datagram + SEQUENCE);
    uint16_t path = word16(datagram + PATH);
    if (sequence >= transfer->packets || word32(datagram + ELEMENT_OFFSET) != sequence * transfer->elements_per_packet
        || body_bytes != (sequence == transfer->packets - 1 ? transfer->last_bytes : transfer->full_bytes))
        return;
    memcpy(transfer->elements + sequence * transfer->full_bytes, datagram + HEADER_BYTES, (size_t)body_bytes);
    transfer->by_tos[tos]++;
    if (path < transfer->paths)
        transfer->by_path[path]++;
    if (transfer->received[sequence]) {
        transfer->duplicates++;
        return;
    }
    transfer->received[sequence] = 1;
    transfer->different++;
    if (datagram[FLAGS] & IMPORTANT) {
        transfer->important[sequence] = 1;
        transfer->different_important++;
    }
}

/* The memory that a datagram will be copied to is fetched meanwhile: rows of one message lie apart. */
static void expect(const struct transfer *transfer, const uint8_t *datagram)
{
    int64_t sequence = word32(datagram + SEQUENCE);
    if (sequence >= transfer->packets - 1)
        return;
    const uint8_t *row = transfer->elements + sequence * transfer->full_bytes;
    int64_t size_bytes = transfer->full_bytes < MOST_EXPECTED_BYTES ? transfer->full_bytes : MOST_EXPECTED_BYTES;
    for (int64_t at = 0; at < size_bytes; at += CACHE_LINE_BYTES)
        __builtin_prefetch(row + at, 1, 2);
}

/* Most packets are of the transfer that got something last, or of one of a few: they are looked at first. */
static struct transfer *transfer_of(struct registry *registry, const uint8_t *datagram)
{
    for (int64_t place = 0; place < registry->open_count; place++) {
        struct transfer *found = registry->open[place];
        if (!is_of(datagram, found))
            continue;
        memmove(registry->open + 1, registry->open, (size_t)place * sizeof found);
        return registry->open[0] = found;
    }
    return NULL;
}

static void begin_read(struct registry *registry)
{
    registry->read++;
    registry->touched_count = registry->datagrams = registry->answer_count = 0;
}

static void touch(struct registry *registry, struct transfer *transfer)
{
    if (transfer->read == registry->read)
        return;
    registry->touched[registry->touched_count++] = transfer;
    transfer->read = registry->read;
    transfer->different = transfer->different_important = transfer->duplicates = 0;
    transfer->least_took_ns = INT64_MAX;
    transfer->most_took_ns = INT64_MIN;
}

/* Number of the connection that a datagram says it belongs to; -1: none. */
static int64_t connection_of(const struct registry *registry, const uint8_t *datagram)
{
    for (int64_t number = 0; number < registry->connections; number++)
        if (!memcmp(datagram + TOKEN, registry->tokens + number * TOKEN_BYTES, TOKEN_BYTES))
            return number;
    return -1;
}

static int is_answer_to(const struct registry *registry, int64_t connection, const uint8_t *datagram)
{
    return datagram[0] == registry->version && datagram[1] == ACKNOWLEDGEMENT
        && !memcmp(datagram + TOKEN, registry->tokens + connection * TOKEN_BYTES, TOKEN_BYTES);
}

/* All datagrams of a message, if all are acknowledgements to one connection, or none. */
static int take_answers(struct registry *registry, int64_t connection, const uint8_t *first, int64_t message_bytes,
                        int64_t arrived_ns)
{
    int64_t count = message_bytes / ACKNOWLEDGEMENT_BYTES;
    if (message_bytes % ACKNOWLEDGEMENT_BYTES || count > registry->most_answers - registry->answer_count)
        return 0;
    for (const uint8_t *datagram = first; datagram < first + message_bytes; datagram += ACKNOWLEDGEMENT_BYTES)
        if (!is_answer_to(registry, connection, datagram))
            return 0;
    for (const uint8_t *datagram = first; datagram < first + message_bytes; datagram += ACKNOWLEDGEMENT_BYTES)
        registry->answers[registry->answer_count++] = (struct answer){
            (uint64_t)connection,      word16(datagram + PATH), (uint64_t)arrived_ns,       word64(datagram + ECHOED),
            word32(datagram + HELD), word32(datagram + RECEIVED), word32(datagram + MARKED)};
    registry->datagrams += count;
    return 1;
}

/* Datagrams of one length, the last of which may be shorter: all of them, if all are data of one open transfer or
 * acknowledgements to one connection, or none. Returns whether they were taken in. */
static int take_message(struct registry *registry, const uint8_t *first, int64_t message_bytes,
                        int64_t datagram_bytes, uint8_t tos, int64_t arrived_ns)
{
    if (datagram_bytes <= HEADER_BYTES || message_bytes < datagram_bytes)
        return 0;
    int64_t connection = connection_of(registry, first);
    if (connection < 0) /* strangers cost no look at all the transfers */
        return 0;
    if (datagram_bytes == ACKNOWLEDGEMENT_BYTES
        && take_answers(registry, connection, first, message_bytes, arrived_ns))
        return 1;
    int64_t rest_bytes = message_bytes % datagram_bytes;
    if (rest_bytes && rest_bytes <= HEADER_BYTES)
        return 0;
    struct transfer *transfer = transfer_of(registry, first);
    if (!transfer)
        return 0;
    for (int64_t at = datagram_bytes; at < message_bytes; at += datagram_bytes)
        if (!is_of(first + at, transfer))
            return 0;
    touch(registry, transfer);
    for (int64_t at = 0; at < message_bytes; at += datagram_bytes) {
        const uint8_t *datagram = first + at;
        int64_t left_bytes = message_bytes - at;
        if (left_bytes > datagram_bytes)
            expect(transfer, datagram + datagram_bytes);
        uint64_t sent_ns = word64(datagram + SENT);
        int64_t took_ns = (int64_t)((uint64_t)arrived_ns - sent_ns);
        if (took_ns < transfer->least_took_ns)
            transfer->least_took_ns = took_ns;
        if (took_ns > transfer->most_took_ns)
            transfer->most_took_ns = took_ns;
        count(transfer->feedback, word16(datagram + PATH), sent_ns, arrived_ns, (tos & ECN_MASK) == ECN_MASK);
        take_in(transfer, datagram, (left_bytes < datagram_bytes ? left_bytes : datagram_bytes) - HEADER_BYTES, tos);
        registry->datagrams++;
    }
    return 1;
}

/* Returns how many messages of all grids were left, each of which has a 1 in `is_left`. */
int64_t mlt_take(struct registry *registry, const struct grid *grids, int64_t count, uint8_t *is_left)
{
    int64_t left = 0;
    begin_read(registry);
    for (const struct grid *grid = grids; grid < grids + count; grid++)
        for (int64_t message = 0; message < grid->messages; message++, is_left++) {
            *is_left = !take_message(registry, grid->first + message * grid->message_stride_bytes,
                                     grid->message_bytes, grid->datagram_bytes, grid->tos[message],
                                     grid->arrived_ns[message]);
            left += *is_left;
        }
    return left;
}

/* struct cmsghdr as 64-bit words: length, level and type, value. What was read is cleared for the next call. */
void mlt_controls(int64_t *words, int64_t messages, int64_t words_per_message, int64_t tos_key, int64_t segment_key,
                  int64_t time_key, uint8_t *tos, int64_t *segments, int64_t *times_ns)
{
    for (int64_t message = 0; message < messages; message++, words += words_per_message) {
        tos[message] = 0;
        segments[message] = times_ns[message] = 0;
        for (int64_t at = 0; at + 4 <= words_per_message && words[at] > 0; at += (words[at] + 7) / 8) {
            if (words[at + 1] == time_key)
                times_ns[message] = words[at + 2] * 1000000000 + words[at + 3];
            else if (words[at + 1] == segment_key)
                segments[message] = words[at + 2] & 0xFFFF;
            else if (words[at + 1] == tos_key)
                tos[message] = (uint8_t)words[at + 2];
        }
        memset(words, 0, (size_t)words_per_message * sizeof *words);
    }
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The messages of one call, from slot `first` on. Those taken in get a length of 0; returns the slot behind the last
 * that was left, `first` where none was. */
static int64_t take_batch(struct receiver *receiver, struct registry *registry, int64_t first, int64_t count,
                          int64_t *batch_bytes)
{
    int64_t end = first, arrived_by_ns = now_ns(CLOCK_MONOTONIC);
    int64_t ahead_more_ns = now_ns(CLOCK_REALTIME) - arrived_by_ns - receiver->ahead_ns;
    int was_set = ahead_more_ns > receiver->step_ns || ahead_more_ns < -receiver->step_ns;
    mlt_controls(receiver->controls + first * receiver->words_per_message, count, receiver->words_per_message,
                 receiver->tos_key, receiver->segment_key, receiver->time_key, receiver->tos + first,
                 receiver->segments_bytes + first, receiver->arrived_ns + first);
    for (int64_t slot = first; slot < first + count; slot++) {
        struct mmsghdr *message = receiver->messages + slot;
        int64_t length_bytes = message->msg_len, segment_bytes = receiver->segments_bytes[slot];
        int64_t arrived_ns = receiver->arrived_ns[slot] - receiver->ahead_ns;
        if (was_set || arrived_ns > arrived_by_ns || arrived_ns < arrived_by_ns - receiver->longest_wait_ns)
            arrived_ns = arrived_by_ns;
        receiver->arrived_ns[slot] = arrived_ns;
        if (arrived_ns > receiver->newest_ns)
            receiver->newest_ns = arrived_ns;
        *batch_bytes += length_bytes;
        /* The kernel has overwritten what the next call reads. */
        message->msg_hdr.msg_controllen = (size_t)receiver->words_per_message * sizeof *receiver->controls;
        if (segment_bytes == 0 || segment_bytes > length_bytes)
            segment_bytes = length_bytes;
        if (registry && !(message->msg_hdr.msg_flags & MSG_TRUNC)
            && take_message(registry, message->msg_hdr.msg_iov->iov_base, length_bytes, segment_bytes,
                            receiver->tos[slot], arrived_ns))
            message->msg_len = 0;
        else
            end = slot + 1;
    }
    return end;
}

/* Reads a socket until it is empty, or the slots are full of what was left, or enough was read. Returns how many slots
 * the caller is to look at. Few messages a call use the same memory again and again, which a cache then holds. */
int64_t mlt_receive(int descriptor, struct receiver *receiver, struct registry *registry)
{
    int64_t used = 0, total_bytes = 0;
    receiver->calls = receiver->received = receiver->error = 0;
    receiver->newest_ns = INT64_MIN;
    if (registry)
        begin_read(registry);
    do {
        int64_t room = receiver->slots - used, batch_bytes = 0;
        int64_t wanted = receiver->wanted < room ? receiver->wanted : room;
        int64_t count = recvmmsg(descriptor, receiver->messages + used, (unsigned)wanted, MSG_DONTWAIT, NULL);
        receiver->calls++;
        receiver->was_full = count == wanted;
        if (count < 0) {
            receiver->error = errno;
            break;
        }
        receiver->received += count;
        used = take_batch(receiver, registry, used, count, &batch_bytes);
        total_bytes += batch_bytes;
        wanted = receiver->batch_bytes * count / (batch_bytes ? batch_bytes : 1);
        wanted = wanted > receiver->least_messages ? wanted : receiver->least_messages;
        receiver->wanted = wanted < receiver->slots ? wanted : receiver->slots;
    } while (receiver->was_full && used < receiver->slots && total_bytes < receiver->most_bytes
             && receiver->received < receiver->most_messages);
    return used;
}
