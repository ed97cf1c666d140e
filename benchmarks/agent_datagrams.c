/* What the kernel lets a C loop do with UDP: the peer and the ceiling of benchmarks/agent_goodput.py.
 *
 *   agent_datagrams receive PORT plain|offload NAP_MICROSECONDS
 *   agent_datagrams send PORT plain|offload PACKET_BYTES BURST_PACKETS TENSOR_BYTES SECONDS ADDRESS...
 *
 * Sender: a tensor over and over, PACKET_BYTES of UDP payload a packet, of which the first 40 are a header that is
 * written anew for each (sequence, time), as two vectors. `plain`: sendmmsg(2), 64 messages a call, each packet
 * with a destination and a DSCP/ECN byte of its own. `offload`: the same, but a message is a burst of BURST_PACKETS
 * (UDP_SEGMENT) with one destination and one byte. Receiver: recvmmsg(2), 64 messages a call, into memory that is
 * used again; nothing is scattered. After a call that did not fill the batch it sleeps so long (0: not at all).
 *
 * The receiver says every 512 KiB how much has come, and the sender keeps at most WINDOW_BYTES on their way, so
 * that nothing is lost in the receiver's socket. A port near 0 bytes of credit for 100 ms is asked again; what does
 * not come even then is counted as lost. Each prints one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { BATCH = 64, HEADER_BYTES = 40, MOST_PACKETS = 128, MOST_BYTES = 65536, CREDIT_BYTES = 1 << 19 };
enum { WINDOW_BYTES = 8 << 20, ASK_MILLISECONDS = 100, MOST_QUESTIONS = 20, CONTROL_BYTES = 64, MOST_ADDRESSES = 16 };

static const uint64_t QUESTION = 0x716e;

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static int udp_socket(int port)
{
    struct sockaddr_in local = {.sin_family = AF_INET, .sin_port = htons(port)};
    int buffer_bytes = 64 << 20, file = socket(AF_INET, SOCK_DGRAM, 0);
    if (file < 0)
        fail("socket");
    if (setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes)
        || setsockopt(file, SOL_SOCKET, SO_SNDBUFFORCE, &buffer_bytes, sizeof buffer_bytes))
        fail("socket buffers");
    if (bind(file, (struct sockaddr *)&local, sizeof local))
        fail("bind");
    return file;
}

static void *memory(size_t size)
{
    void *place = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (place == MAP_FAILED)
        fail("mmap");
    return place;
}

static int receive(int port, int offload, int nap_microseconds)
{
    static struct mmsghdr messages[BATCH];
    static struct iovec vectors[BATCH];
    static char controls[BATCH][CONTROL_BYTES];
    static struct sockaddr_in senders[BATCH];
    uint64_t received = 0, credited = 0, packets = 0, marks = 0;
    size_t slot_bytes = offload ? MOST_BYTES : 9216;
    char *staging = memory(BATCH * slot_bytes);
    int file = udp_socket(port), on = 1;
    double cpu_before = 0;
    if (setsockopt(file, IPPROTO_IP, IP_RECVTOS, &on, sizeof on))
        fail("IP_RECVTOS");
    if (offload && setsockopt(file, IPPROTO_UDP, UDP_GRO, &on, sizeof on))
        fail("UDP_GRO");
    puts("ready");
    fflush(stdout);
    for (;;) {
        for (int each = 0; each < BATCH; each++) {
            vectors[each] = (struct iovec){staging + each * slot_bytes, slot_bytes};
            messages[each].msg_hdr = (struct msghdr){.msg_name = &senders[each], .msg_namelen = sizeof senders[each],
                .msg_iov = &vectors[each], .msg_iovlen = 1, .msg_control = controls[each],
                .msg_controllen = CONTROL_BYTES};
        }
        int count = recvmmsg(file, messages, BATCH, MSG_WAITFORONE, NULL);
        if (count < 0)
            fail("recvmmsg");
        if (!received)
            cpu_before = cpu_seconds();
        int asked = 0, ended = 0;
        for (int each = 0; each < count; each++) {
            struct msghdr *header = &messages[each].msg_hdr;
            unsigned length = messages[each].msg_len, segment = length;
            if (length <= 2 * sizeof(uint64_t)) {
                asked = 1;
                ended |= length > sizeof QUESTION;
                continue;
            }
            for (struct cmsghdr *part = CMSG_FIRSTHDR(header); part; part = CMSG_NXTHDR(header, part)) {
                if (part->cmsg_level == IPPROTO_UDP && part->cmsg_type == UDP_GRO)
                    segment = *(int *)CMSG_DATA(part);
                else if (part->cmsg_level == IPPROTO_IP && part->cmsg_type == IP_TOS)
                    marks += (*CMSG_DATA(part) & 3) == 3;
            }
            received += length;
            packets += (length + segment - 1) / segment;
        }
        if (asked || received - credited >= CREDIT_BYTES) {
            credited = received;
            sendto(file, &credited, sizeof credited, 0, (struct sockaddr *)&senders[0], sizeof senders[0]);
        }
        if (ended) {
            printf("{\"packets\": %lu, \"bytes\": %lu, \"marked\": %lu, \"cpu_seconds\": %.6f}\n", packets, received,
                marks, cpu_seconds() - cpu_before);
            return 0;
        }
        if (nap_microseconds && count < BATCH) {
            struct timespec nap = {0, nap_microseconds * 1000L};
            nanosleep(&nap, NULL);
        }
    }
}

struct traffic {
    int file, burst_packets, address_count;
    struct sockaddr_in addresses[MOST_ADDRESSES];
    uint64_t sent, credited, lost;
};

static void take_credit(struct traffic *state, int flags)
{
    uint64_t value;
    while (recv(state->file, &value, sizeof value, flags) == sizeof value) {
        if (value + state->lost > state->credited)
            state->credited = value + state->lost;
        flags = MSG_DONTWAIT;
    }
}

/* Waits until at most so much is on its way. */
static void wait_for_room(struct traffic *state, uint64_t most)
{
    take_credit(state, MSG_DONTWAIT);
    for (int asked = 0; state->sent - state->credited > most; asked++) {
        struct pollfd one = {state->file, POLLIN, 0};
        int ready = poll(&one, 1, asked ? ASK_MILLISECONDS : 2);
        if (ready > 0) {
            take_credit(state, MSG_DONTWAIT);
            asked = -1;
            continue;
        }
        if (asked > MOST_QUESTIONS) {
            fputs("the receiver does not answer\n", stderr);
            exit(1);
        }
        uint64_t before = state->credited;
        sendto(state->file, &QUESTION, sizeof QUESTION, 0, (struct sockaddr *)&state->addresses[0],
            sizeof state->addresses[0]);
        if (asked && poll(&one, 1, ASK_MILLISECONDS) > 0) {
            take_credit(state, MSG_DONTWAIT);
            if (state->credited == before) {
                state->lost += state->sent - state->credited;
                state->credited = state->sent;
            }
        }
    }
}

static int send_all(int port, int offload, int packet_bytes, int burst_packets, size_t tensor_bytes, double seconds,
    char **addresses, int address_count)
{
    static struct mmsghdr messages[BATCH];
    static struct iovec vectors[BATCH][2 * MOST_PACKETS];
    static char headers[BATCH][MOST_PACKETS][HEADER_BYTES];
    static char controls[BATCH][CONTROL_BYTES];
    struct traffic state = {.file = udp_socket(0), .burst_packets = offload ? burst_packets : 1,
        .address_count = address_count};
    int body_bytes = packet_bytes - HEADER_BYTES;
    uint64_t random = 88172645463325252ull, packets = 0, tensors = 0;
    char *tensor = memory(tensor_bytes);
    for (size_t place = 0; place + 8 <= tensor_bytes; place += 8) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        memcpy(tensor + place, &random, 8);
    }
    for (int each = 0; each < address_count; each++) {
        state.addresses[each].sin_family = AF_INET;
        state.addresses[each].sin_port = htons(port);
        if (inet_pton(AF_INET, addresses[each], &state.addresses[each].sin_addr) != 1)
            fail(addresses[each]);
    }
    double cpu_before = cpu_seconds(), started = seconds_of(CLOCK_MONOTONIC);
    do {
        size_t place = 0;
        uint32_t sequence = 0;
        while (place < tensor_bytes) {
            int count = 0;
            uint64_t batch_bytes = 0;
            uint64_t sent_at = seconds_of(CLOCK_MONOTONIC) * 1e9;
            for (; count < BATCH && place < tensor_bytes; count++) {
                int used = 0;
                for (; used < state.burst_packets && place < tensor_bytes; used++) {
                    size_t left = tensor_bytes - place, size = left < (size_t)body_bytes ? left : (size_t)body_bytes;
                    char *header = headers[count][used];
                    memcpy(header + 24, &sequence, sizeof sequence);
                    memcpy(header + 32, &sent_at, sizeof sent_at);
                    vectors[count][2 * used] = (struct iovec){header, HEADER_BYTES};
                    vectors[count][2 * used + 1] = (struct iovec){tensor + place, size};
                    place += size;
                    sequence++;
                    batch_bytes += size + HEADER_BYTES;
                }
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                struct msghdr *message = &messages[count].msg_hdr;
                *message = (struct msghdr){.msg_name = &state.addresses[random % address_count],
                    .msg_namelen = sizeof state.addresses[0], .msg_iov = vectors[count], .msg_iovlen = 2 * used,
                    .msg_control = controls[count], .msg_controllen = CONTROL_BYTES};
                struct cmsghdr *part = CMSG_FIRSTHDR(message);
                size_t control_bytes = CMSG_SPACE(sizeof(int));
                *part = (struct cmsghdr){CMSG_LEN(sizeof(int)), IPPROTO_IP, IP_TOS};
                *(int *)CMSG_DATA(part) = 34 << 2 | (random >> 32 & 2);
                if (offload && used > 1) {
                    part = (struct cmsghdr *)(controls[count] + control_bytes);
                    *part = (struct cmsghdr){CMSG_LEN(sizeof(uint16_t)), IPPROTO_UDP, UDP_SEGMENT};
                    *(uint16_t *)CMSG_DATA(part) = packet_bytes;
                    control_bytes += CMSG_SPACE(sizeof(uint16_t));
                }
                message->msg_controllen = control_bytes;
            }
            packets += batch_bytes / packet_bytes + (batch_bytes % packet_bytes != 0);
            wait_for_room(&state, WINDOW_BYTES);
            for (int done = 0; done < count;) {
                int now = sendmmsg(state.file, messages + done, count - done, 0);
                if (now < 0)
                    fail("sendmmsg");
                done += now;
            }
            state.sent += batch_bytes;
        }
        tensors++;
    } while (seconds_of(CLOCK_MONOTONIC) < started + seconds);
    wait_for_room(&state, 0);
    double elapsed = seconds_of(CLOCK_MONOTONIC) - started, cpu = cpu_seconds() - cpu_before;
    uint64_t end[2] = {QUESTION, QUESTION};
    sendto(state.file, end, sizeof end, 0, (struct sockaddr *)&state.addresses[0], sizeof state.addresses[0]);
    printf("{\"tensors\": %lu, \"bytes\": %lu, \"seconds\": %.6f, \"packets\": %lu, \"lost_bytes\": %lu, "
           "\"cpu_seconds\": %.6f}\n", tensors, tensors * tensor_bytes, elapsed, packets, state.lost, cpu);
    return 0;
}

int main(int count, char **words)
{
    if (count == 5 && !strcmp(words[1], "receive"))
        return receive(atoi(words[2]), !strcmp(words[3], "offload"), atoi(words[4]));
    if (count >= 9 && count - 8 <= MOST_ADDRESSES && !strcmp(words[1], "send") && atoi(words[5]) <= MOST_PACKETS)
        return send_all(atoi(words[2]), !strcmp(words[3], "offload"), atoi(words[4]), atoi(words[5]), atol(words[6]),
            atof(words[7]), words + 8, count - 8);
    fputs("see the first lines of agent_datagrams.c\n", stderr);
    return 2;
}
