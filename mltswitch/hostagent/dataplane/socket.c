/* The threaded door: UDP sockets, the thread that serves them, and what the kernel is asked to do for it.
 *
 * Only this file makes system calls while packets flow. The thread sleeps in epoll until a datagram, a command or a timer
 * is due; nothing here knows what a datagram means.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/udp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum {
    SLOT_BYTES = 65536,        /* a coalesced message is no longer */
    STRIDE_BYTES = 65536 + 2112, /* between two: small messages must not all lie in the same lines of the cache */
    SLOTS = 64,              /* messages of one recvmmsg */
    LARGE_SLOTS = 8,         /* where messages are large: what is copied twice should stay in the cache */
    LARGE_BYTES = 16 << 10,
    MOST_READ_BYTES = 1 << 20, /* of one socket, before others have their turn */
    CONTROL_BYTES = 128,
    WAKE = MLT_MOST_SOCKETS, /* as number of an epoll event */
    MOST_SENT = 64,          /* messages of one sendmmsg */
    DATAGRAM_PARTS = 3,      /* header, body, tag */
    CLOCK_ATTEMPTS = 4,
};
static const int64_t FIRST_WAIT_NS = 100 * MILLISECOND; /* until bursts are joined again on a path where that failed; */
static const int64_t LAST_WAIT_NS = 10 * SECOND;        /* at most, where it goes on failing */
static const int64_t NAP_NS = 100 * MICROSECOND;  /* in the middle of a long tensor, so that reads are worth their calls */
static const int64_t URGENT_NS = 10 * MILLISECOND; /* after the last large piece */
static const int URGENT_NICENESS = -20;
static const int64_t CLOCKS_NS = 2 * MICROSECOND; /* to read three clocks */
static const int64_t LONGEST_WAIT_NS = SECOND; /* in a socket: a stamp that says more is of a clock that was set */

struct sockets {
    int descriptors[MLT_MOST_SOCKETS];
    int families[MLT_MOST_SOCKETS];
    bool is_waiting[MLT_MOST_SOCKETS]; /* to be writable again */
    int count, poll;
    pthread_t thread;
    bool is_running, has_no_pwait2;
    _Atomic bool must_stop;
    struct mmsghdr received[SLOTS], sent[MOST_SENT];
    struct iovec slots[SLOTS];
    union {
        struct cmsghdr first; /* for its alignment */
        uint8_t bytes[CONTROL_BYTES];
    } received_controls[SLOTS], sent_controls[MOST_SENT];
    struct {
        struct iovec parts[1 + DATAGRAM_PARTS];
        uint8_t head[MLT_FRAME_BYTES];
    } frames[MOST_SENT];
    uint8_t *memory;
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * SECOND + now.tv_nsec;
}

/* ------------------------------------------------------------------------------------------------------ set-up */

static struct sockets *sockets_new(void)
{
    struct sockets *sockets = calloc(1, sizeof *sockets);
    if (!sockets)
        return NULL;
    sockets->poll = epoll_create1(EPOLL_CLOEXEC);
    sockets->memory = malloc((size_t)SLOTS * STRIDE_BYTES);
    if (sockets->poll >= 0 && sockets->memory)
        return sockets;
    if (sockets->poll >= 0)
        close(sockets->poll);
    free(sockets->memory);
    free(sockets);
    return NULL;
}

void sockets_free(struct mlt *core)
{
    struct sockets *sockets = core->sockets;
    if (!sockets)
        return;
    for (int number = 0; number < sockets->count; number++)
        close(sockets->descriptors[number]);
    close(sockets->poll);
    free(sockets->memory);
    free(sockets);
    core->sockets = NULL;
}

bool sockets_has(const struct mlt *core, int number, bool is_for_frames)
{
    return core->sockets && number < core->sockets->count
        && (core->sockets->families[number] == AF_PACKET) == is_for_frames;
}

static bool can_set(int descriptor, int level, int option, int value)
{
    return setsockopt(descriptor, level, option, &value, sizeof value) == 0;
}

static uint32_t set_options(int descriptor, int family)
{
    int segment_bytes = 0;
    socklen_t size = sizeof segment_bytes;
    uint32_t features = 0;
    bool tells_tos = family == AF_INET6 ? can_set(descriptor, IPPROTO_IPV6, IPV6_RECVTCLASS, 1)
                                        : can_set(descriptor, IPPROTO_IP, IP_RECVTOS, 1);
    (void)tells_tos; /* without, marks are not seen, and nothing else is different */
    /* A fragment has no header of ours, so that no switch could tell what it is; the kernel refuses too long bursts anyway.
     * Who reports a short MTU on the way is not believed: nothing proves that it is on the way. */
    bool is_whole = family == AF_INET6 ? can_set(descriptor, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE)
                                       : can_set(descriptor, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
    (void)is_whole; /* a packet socket has no such option, and needs none */
    if (!getsockopt(descriptor, IPPROTO_UDP, UDP_SEGMENT, &segment_bytes, &size))
        features |= MLT_SEGMENTATION;
    if (can_set(descriptor, IPPROTO_UDP, UDP_GRO, 1))
        features |= MLT_COALESCING;
    if (can_set(descriptor, SOL_SOCKET, SO_TIMESTAMPNS, 1))
        features |= MLT_TIMESTAMPS;
    return features;
}

int mlt_add_socket(struct mlt *core, int descriptor, uint32_t *features)
{
    int family = 0;
    socklen_t size = sizeof family;
    if (handle_check(core))
        return MLT_DEAD;
    if (core->shared.is_threaded)
        return MLT_BUSY;
    if (!core->sockets && !(core->sockets = sockets_new()))
        return MLT_NO_MEMORY;
    struct sockets *sockets = core->sockets;
    if (sockets->count == MLT_MOST_SOCKETS)
        return MLT_FULL;
    if (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &family, &size)
        || (family != AF_INET && family != AF_INET6 && family != AF_PACKET))
        return MLT_INVALID;
    int copy = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (copy < 0)
        return MLT_SYSTEM;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)sockets->count};
    if (epoll_ctl(sockets->poll, EPOLL_CTL_ADD, copy, &event)) {
        close(copy);
        return MLT_SYSTEM;
    }
    uint32_t found = set_options(copy, family);
    if (features)
        *features = found;
    core->cannot_segment |= (uint64_t)!(found & MLT_SEGMENTATION) << sockets->count;
    sockets->descriptors[sockets->count] = copy;
    sockets->families[sockets->count] = family;
    return sockets->count++;
}

/* ----------------------------------------------------------------------------------------------------- sending */

/* One datagram in a frame of our own. */
static void describe_frame(struct sockets *sockets, int place, const struct batch *batch,
                           const struct outgoing *message)
{
    const struct path *path = &message->flow->paths[message->path];
    uint8_t *head = sockets->frames[place].head;
    uint8_t *udp = head + path->frame_bytes - UDP_BYTES, *ip = udp - IPV4_BYTES;
    uint32_t udp_bytes = UDP_BYTES + message->bytes, sum = 0;
    memcpy(head, path->frame, path->frame_bytes);
    ip[IPV4_TOS_OFFSET] = message->tos;
    write16(ip + IPV4_LENGTH_OFFSET, (uint16_t)(IPV4_BYTES + udp_bytes));
    write16(ip + IPV4_CHECKSUM_OFFSET, 0);
    write16(udp + UDP_LENGTH_OFFSET, (uint16_t)udp_bytes);
    write16(udp + UDP_CHECKSUM_OFFSET, 0);
    for (int at = 0; at < IPV4_BYTES; at += 2)
        sum += read16(ip + at);
    sum = (sum & 0xFFFF) + (sum >> 16);
    write16(ip + IPV4_CHECKSUM_OFFSET, (uint16_t)~(sum + (sum >> 16)));
    struct iovec *parts = sockets->frames[place].parts;
    parts[0] = (struct iovec){head, path->frame_bytes};
    memcpy(parts + 1, &batch->parts[message->first_part], (size_t)message->parts * sizeof *parts);
    sockets->sent[place].msg_hdr = (struct msghdr){.msg_iov = parts, .msg_iovlen = (size_t)message->parts + 1};
}

static void describe(struct sockets *sockets, int place, const struct batch *batch, const struct outgoing *message)
{
    struct path *path = &message->flow->paths[message->path];
    if (path->frame_bytes) {
        describe_frame(sockets, place, batch, message);
        return;
    }
    bool is_ipv6 = sockets->families[path->socket] == AF_INET6;
    uint8_t *control = sockets->sent_controls[place].bytes;
    struct cmsghdr *part = (struct cmsghdr *)(void *)control;
    int tos = message->tos;
    size_t control_bytes = CMSG_SPACE(sizeof tos);
    *part = (struct cmsghdr){CMSG_LEN(sizeof tos), is_ipv6 ? IPPROTO_IPV6 : IPPROTO_IP,
                             is_ipv6 ? IPV6_TCLASS : IP_TOS};
    memcpy(CMSG_DATA(part), &tos, sizeof tos);
    if (message->packets > 1) {
        uint16_t segment_bytes = (uint16_t)message->segment_bytes;
        part = (struct cmsghdr *)(void *)(control + control_bytes);
        *part = (struct cmsghdr){CMSG_LEN(sizeof segment_bytes), IPPROTO_UDP, UDP_SEGMENT};
        memcpy(CMSG_DATA(part), &segment_bytes, sizeof segment_bytes);
        control_bytes += CMSG_SPACE(sizeof segment_bytes);
    }
    sockets->sent[place].msg_hdr = (struct msghdr){
        .msg_name = path->name, .msg_namelen = path->name_bytes,
        .msg_iov = (struct iovec *)(uintptr_t)&batch->parts[message->first_part], .msg_iovlen = (size_t)message->parts,
        .msg_control = control, .msg_controllen = control_bytes};
}

static uint32_t packet_bytes(const struct outgoing *message)
{
    return message->packets > 1 ? message->segment_bytes : message->bytes;
}

static void tell(struct mlt *core, const struct outgoing *message, int error)
{
    struct path *path = &message->flow->paths[message->path];
    path->last_error = error;
    path->error_bytes = error == EMSGSIZE || error == EINVAL ? packet_bytes(message) : 0;
    core_event(core, &(struct mlt_event){.kind = MLT_EVENT_SEND_ERROR, .flow = message->flow->token,
                                         .transfer = (uint64_t)message->packets, .path = message->path, .value = error});
}

/* A message that the kernel does not take is lost, as if by the network; its path may learn from it. A burst may
 * fail by itself, where a route's MTU falls below its packets (EINVAL of older kernels) or an interface changes: for a while
 * packets go one by one. A failure soon after that while doubles it. */
static void refused(struct mlt *core, const struct outgoing *message, int error)
{
    struct path *path = &message->flow->paths[message->path];
    core->counters.send_errors++;
    if (message->packets > 1 && (error == EIO || error == EINVAL || error == ENOPROTOOPT || error == EOPNOTSUPP)) {
        bool is_soon = path->join_wait_ns && core->now_ns - path->join_ns < path->join_wait_ns;
        if (is_soon && core->now_ns < path->join_ns)
            return; /* it was joined before the one that failed */
        path->join_wait_ns = !is_soon ? FIRST_WAIT_NS : 2 * path->join_wait_ns < LAST_WAIT_NS ? 2 * path->join_wait_ns
                                                                                             : LAST_WAIT_NS;
        path->join_ns = core->now_ns + path->join_wait_ns;
    }
    if (error != ENOBUFS && error != ENOMEM && error != path->last_error)
        tell(core, message, error);
}

static void watch(struct sockets *sockets, int number, bool is_waiting)
{
    struct epoll_event event = {.events = is_waiting ? EPOLLIN | EPOLLOUT : EPOLLIN, .data.u32 = (uint32_t)number};
    sockets->is_waiting[number] = is_waiting;
    epoll_ctl(sockets->poll, EPOLL_CTL_MOD, sockets->descriptors[number], &event);
}

int sockets_emit(struct mlt *core, struct batch *batch)
{
    struct sockets *sockets = core->sockets;
    const struct outgoing *first = &batch->messages[batch->done];
    if (!first->parts)
        return 1; /* forgotten meanwhile */
    int socket = first->flow->paths[first->path].socket, count = 0;
    while (count < MOST_SENT && batch->done + count < batch->count) {
        const struct outgoing *message = first + count;
        if (!message->parts || message->flow->paths[message->path].socket != socket)
            break;
        describe(sockets, count++, batch, message);
    }
    int gone;
    do
        gone = sendmmsg(sockets->descriptors[socket], sockets->sent, (unsigned)count, MSG_DONTWAIT);
    while (gone < 0 && errno == EINTR);
    int error = errno;
    core->counters.send_calls++;
    core->now_ns = clock_ns(CLOCK_MONOTONIC);
    if (gone > 0) {
        core->counters.send_messages += (uint64_t)gone;
        for (int number = 0; number < gone; number++) {
            const struct path *path = &first[number].flow->paths[first[number].path];
            if (path->last_error && packet_bytes(first + number) >= path->error_bytes)
                tell(core, first + number, 0);
        }
        return gone;
    }
    if (error == EAGAIN) {
        watch(sockets, socket, true);
        return 0;
    }
    refused(core, first, error);
    return 1;
}

/* --------------------------------------------------------------------------------------------------- receiving */

static void read_controls(struct msghdr *header, uint8_t *tos, uint32_t *segment_bytes, int64_t *stamped_ns)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
        if (part->cmsg_level == IPPROTO_UDP && part->cmsg_type == UDP_GRO) {
            int bytes;
            memcpy(&bytes, CMSG_DATA(part), sizeof bytes);
            *segment_bytes = (uint32_t)bytes;
        } else if ((part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_TOS)
                   || (part->cmsg_level == IPPROTO_IPV6 && part->cmsg_type == IPV6_TCLASS)) {
            *tos = *CMSG_DATA(part);
        } else if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec stamp;
            memcpy(&stamp, CMSG_DATA(part), sizeof stamp);
            *stamped_ns = stamp.tv_sec * SECOND + stamp.tv_nsec;
        }
    }
}

static void take(struct mlt *core, int count, int64_t ahead_ns)
{
    struct sockets *sockets = core->sockets;
    for (int slot = 0; slot < count; slot++) {
        struct mmsghdr *message = &sockets->received[slot];
        uint8_t tos = 0;
        uint32_t segment_bytes = 0;
        int64_t stamped_ns = 0;
        read_controls(&message->msg_hdr, &tos, &segment_bytes, &stamped_ns);
        int64_t arrived_ns = stamped_ns - ahead_ns;
        if (!stamped_ns || arrived_ns > core->now_ns || arrived_ns < core->now_ns - LONGEST_WAIT_NS)
            arrived_ns = core->now_ns;
        receive_message(core, sockets->slots[slot].iov_base, message->msg_len, segment_bytes, tos, arrived_ns);
    }
}

/* How far the clock of the kernel's time stamps is ahead of ours, which is read, too. Who is preempted between two clocks
 * reads them again: the error would be a round trip that is too short. */
static int64_t realtime_ahead(struct mlt *core)
{
    int64_t realtime_ns, before_ns;
    int attempts = 0;
    do {
        before_ns = clock_ns(CLOCK_MONOTONIC);
        realtime_ns = clock_ns(CLOCK_REALTIME);
        core->now_ns = clock_ns(CLOCK_MONOTONIC);
    } while (core->now_ns - before_ns > CLOCKS_NS && ++attempts < CLOCK_ATTEMPTS);
    return realtime_ns - core->now_ns;
}

static void read_socket(struct mlt *core, int number)
{
    struct sockets *sockets = core->sockets;
    uint64_t read_bytes = 0;
    while (read_bytes < MOST_READ_BYTES) {
        for (int slot = 0; slot < core->slots_wanted; slot++) {
            sockets->slots[slot] = (struct iovec){sockets->memory + (size_t)slot * STRIDE_BYTES, SLOT_BYTES};
            sockets->received[slot].msg_hdr =
                (struct msghdr){.msg_iov = &sockets->slots[slot], .msg_iovlen = 1,
                                .msg_control = sockets->received_controls[slot].bytes, .msg_controllen = CONTROL_BYTES};
        }
        int count = recvmmsg(sockets->descriptors[number], sockets->received, (unsigned)core->slots_wanted,
                             MSG_DONTWAIT, NULL);
        core->counters.receive_calls++;
        if (count <= 0)
            return; /* nothing, or an error that an earlier datagram of ours has met: path health sees that */
        int64_t ahead_ns = realtime_ahead(core);
        core->counters.receive_messages += (uint64_t)count;
        uint64_t bytes = 0;
        for (int slot = 0; slot < count; slot++)
            bytes += sockets->received[slot].msg_len;
        take(core, count, ahead_ns);
        read_bytes += bytes;
        bool is_full = count == core->slots_wanted;
        core->slots_wanted = bytes / (uint64_t)count > LARGE_BYTES ? LARGE_SLOTS : SLOTS;
        if (!is_full)
            return;
    }
}

/* ------------------------------------------------------------------------------------------------------ thread */

static int sleep_until(struct mlt *core, struct epoll_event *events, int64_t until_ns)
{
    struct sockets *sockets = core->sockets;
    int64_t wait_ns = until_ns == NEVER ? SECOND : until_ns - clock_ns(CLOCK_MONOTONIC);
    if (wait_ns < 0)
        wait_ns = 0;
    if (wait_ns)
        core->counters.sleeps++;
#ifdef SYS_epoll_pwait2
    if (!sockets->has_no_pwait2) {
        struct timespec wait = {wait_ns / SECOND, wait_ns % SECOND};
        int count = (int)syscall(SYS_epoll_pwait2, sockets->poll, events, MLT_MOST_SOCKETS + 1,
                                 until_ns == NEVER ? NULL : &wait, NULL, 0);
        if (count >= 0 || errno == EINTR)
            return count; /* a sandbox may answer with another error than ENOSYS, and would for ever */
        sockets->has_no_pwait2 = true;
    }
#endif
    int64_t wait_ms = until_ns == NEVER ? -1 : (wait_ns + MILLISECOND - 1) / MILLISECOND;
    return epoll_wait(sockets->poll, events, MLT_MOST_SOCKETS + 1, (int)wait_ms);
}

/* Whoever asks does it, if the thread sleeps: a small tensor is on its way without a change of threads. The thread is
 * woken for what follows. */
void sockets_wake(struct mlt *core, bool is_needed)
{
    if (!core->shared.is_threaded)
        return;
    if (!pthread_mutex_trylock(&core->turn)) {
        bool has_more = core_turn(core, clock_ns(CLOCK_MONOTONIC));
        is_needed = has_more || (core->timers.count && core->timers.heap[0]->at_ns < core->sleeps_until_ns);
        pthread_mutex_unlock(&core->turn);
    }
    if (is_needed)
        handle_signal(core->shared.wake_descriptor);
}

static void serve(struct mlt *core, const struct epoll_event *events, int count)
{
    struct sockets *sockets = core->sockets;
    core->now_ns = clock_ns(CLOCK_MONOTONIC);
    for (int each = 0; each < count; each++) {
        uint32_t number = events[each].data.u32;
        if (number == WAKE) {
            uint64_t wakes;
            ssize_t size = read(core->shared.wake_descriptor, &wakes, sizeof wakes);
            (void)size;
            continue;
        }
        if (events[each].events & EPOLLOUT && sockets->is_waiting[number])
            watch(sockets, (int)number, false);
        if (events[each].events & (EPOLLIN | EPOLLERR))
            read_socket(core, (int)number);
    }
}

/* While much is on its way, a thread of the program that never sleeps must not take half of the processor from this
 * one, where the machine permits: by CAP_SYS_NICE or RLIMIT_NICE. For small tensors, whose turn is the caller's as often,
 * it would only be in the way. Niceness is a thread's own. */
static void set_priority(const struct mlt *core, int niceness, bool *is_urgent)
{
    bool should_be = core->bulk_ns && core->now_ns - core->bulk_ns < URGENT_NS;
    if (should_be != *is_urgent)
        setpriority(PRIO_PROCESS, 0, should_be ? URGENT_NICENESS : niceness);
    *is_urgent = should_be;
}

static void *run(void *argument)
{
    struct mlt *core = argument;
    struct epoll_event events[MLT_MOST_SOCKETS + 1];
    int count = 0;
    sigset_t signals;
    sigfillset(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, NULL); /* they are for the program's own threads */
    prctl(PR_SET_NAME, "mlt-dataplane");
    prctl(PR_SET_TIMERSLACK, 1);
    int niceness = getpriority(PRIO_PROCESS, 0);
    bool is_urgent = false;
    while (!core->sockets->must_stop) {
        pthread_mutex_lock(&core->turn);
        serve(core, events, count);
        bool has_more = core_turn(core, clock_ns(CLOCK_MONOTONIC));
        bool may_nap = core->is_in_bulk && !has_more;
        core->is_in_bulk = false;
        core->sleeps_until_ns = has_more ? 0 : core->timers.count ? core->timers.heap[0]->at_ns : NEVER;
        int64_t until_ns = core->sleeps_until_ns;
        set_priority(core, niceness, &is_urgent);
        pthread_mutex_unlock(&core->turn);
        if (may_nap)
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        count = sleep_until(core, events, until_ns);
    }
    return NULL;
}

int mlt_start(struct mlt *core)
{
    struct sockets *sockets = core->sockets;
    if (handle_check(core) || core->shared.is_dead)
        return MLT_DEAD;
    if (!sockets || sockets->is_running)
        return sockets ? MLT_BUSY : MLT_INVALID;
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = WAKE};
    if (epoll_ctl(sockets->poll, EPOLL_CTL_ADD, core->shared.wake_descriptor, &event))
        return MLT_SYSTEM;
    core->emit = sockets_emit;
    core->slots_wanted = SLOTS;
    core->now_ns = clock_ns(CLOCK_MONOTONIC);
    core->shared.is_threaded = true;
    int error = pthread_create(&sockets->thread, NULL, run, core);
    if (error) {
        core->shared.is_threaded = false;
        errno = error;
        return MLT_SYSTEM;
    }
    sockets->is_running = true;
    return MLT_OK;
}

int mlt_stop(struct mlt *core)
{
    struct sockets *sockets = core->sockets;
    if (handle_check(core))
        return MLT_DEAD;
    if (sockets && sockets->is_running) {
        sockets->must_stop = true;
        handle_signal(core->shared.wake_descriptor);
        pthread_join(sockets->thread, NULL);
        sockets->is_running = false;
    }
    pthread_mutex_lock(&core->turn);
    core->emit = memory_emit; /* nobody takes it out */
    pthread_mutex_lock(&core->shared.lock);
    core->shared.is_threaded = false;
    core->shared.is_dead = true;
    pthread_mutex_unlock(&core->shared.lock);
    commands_run(core);
    for (uint32_t number = 0; number < core->shared.next_flow; number++)
        if (core->flows[number])
            flow_fail(core->flows[number], MLT_DEAD, "the data plane was stopped");
    for (; sockets && sockets->count > 0; sockets->count--)
        close(sockets->descriptors[sockets->count - 1]);
    pthread_mutex_unlock(&core->turn);
    return MLT_OK;
}
