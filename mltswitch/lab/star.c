/* A switch of one process between network namespaces, at rates that user-mode-linux does not reach; star.py drives it.
 *
 *   star NAMESPACE...
 *
 * In each namespace it makes a tun interface path0; host H (1, 2, ... in the order given) has on path P the address
 * 10.P.0.H. The port towards a host on one path has a rate, strict priority between queues (0 first) and two
 * thresholds a queue, as a plan has them: with S bytes or more waiting, ECN-capable packets are marked CE and others
 * are dropped; a packet that does not fit below L bytes, or into the buffer that a port's queues share, is dropped.
 * What is in transmission does not wait. The length of a packet on the line is its IP length and 14 bytes, as the
 * plan counts it. Behind the last port every packet is delayed, each way alike; before the first, it may be lost at
 * random. No tun here has offloads, so bursts come apart.
 *
 * With `leaves L S BPS N` it is L leaves and S spines: N hosts in turn hang on the next leaf, each by one port for all
 * paths, and after the last leaf comes the first again; a packet to another leaf passes a port up to its spine and one down from it, of that rate, with the queues of all
 * ports. Paths 1 to S are the spines; on path S + 1 a packet takes the spine that its addresses and ports hash to.
 *
 * With `cable` it is a router at each host, and cables between them, each direction with a rate, a delay, random loss
 * and a buffer of its own; `hop` says which cable a router takes to a host. What has no hop is dropped.
 *
 * Commands on standard input, one a line, each answered by one line of JSON:
 *   rate BPS | delay NANOSECONDS | loss PROBABILITY | path P loss PROBABILITY
 *   queue Q S L | buffer BYTES | dscp D Q | leaves L S BPS N | report (counts since the last one)
 *   cable FROM TO BPS NANOSECONDS PROBABILITY BYTES | hop AT TO NEXT | cables (bytes and drops since the last one)
 * Transmission goes by the clock of departures, not of wake-ups: a late wake-up sends what is due, and the rate stays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { MOST_HOSTS = 32, MOST_PATHS = 8, QUEUES = 8, LINK_BYTES = 14, MOST_BYTES = 9216, READ_AT_ONCE = 16 };
enum { MOST_LEAVES = 8, MOST_HOPS = 32 };
enum { MOST_PORTS = MOST_HOSTS * (MOST_PATHS + MOST_HOSTS) + 2 * MOST_LEAVES * MOST_PATHS };

struct packet {
    struct packet *next;
    uint64_t due;
    struct port *route[MOST_HOPS + 1]; /* the ports still to pass; NULL behind the last */
    uint16_t length;
    uint8_t host, queue, is_capable, hop;
    unsigned char bytes[];
};

struct line {
    struct packet *first, **last;
    uint64_t bytes;
};

struct port {
    struct line queues[QUEUES], flying; /* behind the port, until its delay is over */
    struct packet *sending;
    uint64_t free_at, last_due, *rate_bps, *delay, *buffer_bytes;
    int waiting;
};

struct cable {
    struct port port;
    uint64_t rate_bps, delay, buffer_bytes, carried, dropped, lost;
    uint32_t loss;
};

struct counts {
    uint64_t offered[QUEUES][2], dropped[QUEUES][2], marked[QUEUES], random_lost, late_sum, late_max, departed;
    uint64_t arrived; /* from hosts, however many ports each passes */
    uint64_t core_offered, core_dropped, core_bytes;
    uint64_t path_bytes[MOST_PATHS + 1];
};

static int files[MOST_HOSTS + 1], host_count;
static struct port ports[MOST_HOSTS + 1][MOST_PATHS + 1], up[MOST_LEAVES][MOST_PATHS + 1],
    down[MOST_LEAVES][MOST_PATHS + 1], *used[MOST_PORTS];
static int used_count, leaf_count = 1, spine_count, hosts_in_turn = 1, has_cables;
static struct cable cables[MOST_HOSTS + 1][MOST_HOSTS + 1];
static uint8_t next_hop[MOST_HOSTS + 1][MOST_HOSTS + 1];
static struct packet *unused;
static struct counts counts;
static uint64_t rate_bps = 1000000000, core_bps, delay, no_delay, buffer_bytes = UINT64_MAX, thresholds[QUEUES], limits[QUEUES];
static uint32_t losses[MOST_PATHS + 1];
static uint8_t queue_of[64];
static uint64_t random_state = 88172645463325252ull;

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t now_nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static uint32_t random_number(void)
{
    random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
    return random_state >> 32;
}

static void append(struct line *line, struct packet *packet)
{
    packet->next = NULL;
    *line->last = packet;
    line->last = &packet->next;
    line->bytes += packet->length + LINK_BYTES;
}

static struct packet *take(struct line *line)
{
    struct packet *packet = line->first;
    line->first = packet->next;
    if (!line->first)
        line->last = &line->first;
    line->bytes -= packet->length + LINK_BYTES;
    return packet;
}

static void discard(struct packet *packet)
{
    packet->next = unused;
    unused = packet;
}

static struct packet *fresh(void)
{
    struct packet *packet = unused;
    if (packet)
        unused = packet->next;
    else if (!(packet = malloc(sizeof *packet + MOST_BYTES)))
        fail("malloc");
    return packet;
}

static void mark(unsigned char *header)
{
    uint32_t sum;
    if ((header[1] & 3) == 3)
        return;
    uint16_t before = header[0] << 8 | header[1];
    header[1] |= 3;
    uint16_t after = header[0] << 8 | header[1];
    sum = (uint16_t) ~(header[10] << 8 | header[11]) + (uint16_t)~before + (uint32_t)after; /* RFC 1624 */
    sum = (sum & 0xffff) + (sum >> 16);
    sum = ~((sum & 0xffff) + (sum >> 16));
    header[10] = sum >> 8, header[11] = sum;
}

static void transmit(struct port *port, uint64_t now);

static void wait_in(struct port *port, struct packet *packet, uint64_t now)
{
    int queue = packet->queue, capable = packet->is_capable, is_core = port->rate_bps == &core_bps;
    struct cable *cable = has_cables ? (struct cable *)port : NULL;
    if (cable && cable->loss && random_number() < cable->loss) {
        cable->lost++;
        counts.random_lost++;
        discard(packet);
        return;
    }
    transmit(port, now);
    uint64_t waiting = port->queues[queue].bytes, in_all = 0, more = packet->length + LINK_BYTES;
    for (int each = 0; each < QUEUES; each++)
        in_all += port->queues[each].bytes;
    counts.offered[queue][capable]++;
    counts.core_offered += is_core;
    if (waiting + more > limits[queue] || in_all + more > *port->buffer_bytes || (!capable && waiting >= thresholds[queue])) {
        counts.dropped[queue][capable]++;
        counts.core_dropped += is_core;
        if (cable)
            cable->dropped++;
        discard(packet);
        return;
    }
    if (waiting >= thresholds[queue]) {
        mark(packet->bytes);
        counts.marked[queue]++;
    }
    counts.core_bytes += is_core ? packet->length : 0;
    if (!port->waiting && !port->sending && port->free_at < now)
        port->free_at = now;
    append(&port->queues[queue], packet);
    port->waiting++;
    transmit(port, now);
}

static void transmit(struct port *port, uint64_t now)
{
    while ((port->waiting || port->sending) && port->free_at <= now) {
        struct packet *packet = port->sending;
        port->sending = NULL;
        if (packet) {
            /* It left when its last bit did, however late this is. */
            packet->due = port->free_at + *port->delay;
            if (packet->due < port->last_due) /* a delay that is less now lets nobody overtake */
                packet->due = port->last_due;
            port->last_due = packet->due;
            if (has_cables)
                ((struct cable *)port)->carried += packet->length + LINK_BYTES;
            if (packet->route[++packet->hop] && !*port->delay)
                wait_in(packet->route[packet->hop], packet, packet->due);
            else
                append(&port->flying, packet);
        }
        if (!port->waiting)
            return;
        int queue = 0;
        while (!port->queues[queue].first)
            queue++;
        port->sending = take(&port->queues[queue]);
        port->waiting--;
        port->free_at += (port->sending->length + LINK_BYTES) * 8000000000ull / *port->rate_bps;
    }
}

static struct port *using(struct port *port, uint64_t *its_rate_bps, uint64_t *its_delay, uint64_t *its_buffer_bytes)
{
    if (!port->rate_bps) {
        port->rate_bps = its_rate_bps, port->delay = its_delay, port->buffer_bytes = its_buffer_bytes;
        port->flying.last = &port->flying.first;
        for (int queue = 0; queue < QUEUES; queue++)
            port->queues[queue].last = &port->queues[queue].first;
        used[used_count++] = port;
    }
    return port;
}

static int spine_of(const struct packet *packet, int path)
{
    const unsigned char *header = packet->bytes;
    uint32_t hash = 2166136261u; /* FNV-1a */
    int ports_at = (header[0] & 15) * 4;
    if (path <= spine_count)
        return path;
    for (int at = 12; at < 20; at++)
        hash = (hash ^ header[at]) * 16777619u;
    for (int at = ports_at; at < ports_at + 4 && ports_at + 4 <= packet->length; at++)
        hash = (hash ^ header[at]) * 16777619u;
    return 1 + (hash >> 16) % spine_count;
}

static int leaf_of(int host)
{
    return (host + hosts_in_turn - 1) / hosts_in_turn % leaf_count;
}

static void route(struct packet *packet, int path)
{
    const unsigned char *header = packet->bytes;
    int from = header[15], hops = 0;
    struct port **hop = packet->route;
    if (has_cables) {
        for (int at = from; at != packet->host && hops < MOST_HOPS; at = next_hop[at][packet->host]) {
            struct cable *cable = &cables[at][next_hop[at][packet->host]];
            if (!cable->rate_bps) {
                hops = 0;
                break;
            }
            hop[hops++] = using(&cable->port, &cable->rate_bps, &cable->delay, &cable->buffer_bytes);
        }
    } else if (!spine_count) {
        hop[hops++] = using(&ports[packet->host][path], &rate_bps, &delay, &buffer_bytes);
    } else {
        int leaf = leaf_of(packet->host), first = leaf_of(from);
        if (leaf != first) {
            int spine = spine_of(packet, path);
            hop[hops++] = using(&up[first][spine], &core_bps, &no_delay, &buffer_bytes);
            hop[hops++] = using(&down[leaf][spine], &core_bps, &no_delay, &buffer_bytes);
        }
        hop[hops++] = using(&ports[packet->host][0], &rate_bps, &delay, &buffer_bytes);
    }
    hop[hops] = NULL;
    packet->hop = 0;
}

static void arrive(struct packet *packet, uint64_t now)
{
    unsigned char *header = packet->bytes;
    int path = header[17], host = header[19];
    if (packet->length < 20 || header[0] >> 4 != 4 || header[16] != 10 || path < 1 || path > MOST_PATHS || host < 1
        || host > host_count || (has_cables && header[15] > host_count)) {
        discard(packet);
        return;
    }
    counts.path_bytes[path] += packet->length;
    counts.arrived++;
    if (losses[path] && random_number() < losses[path]) {
        counts.random_lost++;
        discard(packet);
        return;
    }
    packet->host = host;
    packet->queue = queue_of[header[1] >> 2];
    packet->is_capable = (header[1] & 3) != 0;
    route(packet, path);
    if (packet->route[0])
        wait_in(packet->route[0], packet, now);
    else
        discard(packet);
}

static void land(struct port *port, uint64_t now)
{
    while (port->flying.first && port->flying.first->due <= now) {
        struct packet *packet = take(&port->flying);
        uint64_t late = now - packet->due;
        if (packet->route[packet->hop]) {
            wait_in(packet->route[packet->hop], packet, packet->due);
            continue;
        }
        counts.departed++;
        counts.late_sum += late;
        if (late > counts.late_max)
            counts.late_max = late;
        if (write(files[packet->host], packet->bytes, packet->length) < 0 && errno != EAGAIN && errno != EIO)
            fail("write to a host");
        discard(packet);
    }
}

static void report(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"arrived\": %lu, \"random_lost\": %lu, \"core_offered\": %lu, \"core_dropped\": %lu, "
           "\"core_bytes\": %lu, ",
        counts.arrived, counts.random_lost, counts.core_offered, counts.core_dropped, counts.core_bytes);
    printf("\"departed\": %lu, \"late_mean_us\": %.3f, \"late_max_us\": %.3f, "
           "\"cpu_seconds\": %.6f, \"queues\": [",
        counts.departed, counts.departed ? counts.late_sum / 1e3 / counts.departed : 0.0,
        counts.late_max / 1e3,
        usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6);
    for (int queue = 0; queue < QUEUES; queue++)
        printf("%s{\"important\": %lu, \"important_dropped\": %lu, \"unimportant\": %lu, \"unimportant_dropped\": %lu, "
               "\"marked\": %lu}",
            queue ? ", " : "", counts.offered[queue][1], counts.dropped[queue][1], counts.offered[queue][0],
            counts.dropped[queue][0], counts.marked[queue]);
    printf("], \"path_bytes\": [");
    for (int path = 1; path <= MOST_PATHS; path++)
        printf("%s%lu", path > 1 ? ", " : "", counts.path_bytes[path]);
    puts("]}");
    memset(&counts, 0, sizeof counts);
}

static void report_cables(void)
{
    const char *before = "";
    printf("{\"cables\": [");
    for (int from = 1; from <= host_count; from++)
        for (int to = 1; to <= host_count; to++) {
            struct cable *cable = &cables[from][to];
            if (!cable->rate_bps)
                continue;
            printf("%s[%d, %d, %lu, %lu, %lu]", before, from, to, cable->carried, cable->dropped, cable->lost);
            before = ", ";
            cable->carried = cable->dropped = cable->lost = 0;
        }
    puts("]}");
    fflush(stdout);
}

static uint32_t share(double probability)
{
    return probability >= 1 ? UINT32_MAX : probability * UINT32_MAX;
}

static void obey(const char *line)
{
    unsigned long first, second, third, fourth, fifth;
    double probability;
    if (sscanf(line, "rate %lu", &first) == 1 && first)
        rate_bps = first;
    else if (sscanf(line, "delay %lu", &first) == 1)
        delay = first;
    else if (sscanf(line, "loss %lf", &probability) == 1)
        for (int path = 1; path <= MOST_PATHS; path++)
            losses[path] = share(probability);
    else if (sscanf(line, "path %lu loss %lf", &first, &probability) == 2 && first <= MOST_PATHS)
        losses[first] = share(probability);
    else if (sscanf(line, "queue %lu %lu %lu", &first, &second, &third) == 3 && first < QUEUES)
        thresholds[first] = second, limits[first] = third;
    else if (sscanf(line, "buffer %lu", &first) == 1)
        buffer_bytes = first;
    else if (sscanf(line, "dscp %lu %lu", &first, &second) == 2 && first < 64 && second < QUEUES)
        queue_of[first] = second;
    else if (sscanf(line, "leaves %lu %lu %lu %lu", &first, &second, &third, &fourth) == 4 && first
        && first <= MOST_LEAVES && second && second < MOST_PATHS && third && fourth)
        leaf_count = first, spine_count = second, core_bps = third, hosts_in_turn = fourth;
    else if (sscanf(line, "cable %lu %lu %lu %lu %lf %lu", &first, &second, &third, &fourth, &probability, &fifth) == 6
        && first && first <= MOST_HOSTS && second && second <= MOST_HOSTS && third) {
        struct cable *cable = &cables[first][second];
        cable->rate_bps = third, cable->delay = fourth, cable->loss = share(probability), cable->buffer_bytes = fifth;
        has_cables = 1;
    } else if (sscanf(line, "hop %lu %lu %lu", &first, &second, &third) == 3 && first <= MOST_HOSTS
        && second <= MOST_HOSTS && third <= MOST_HOSTS)
        next_hop[first][second] = third;
    else if (!strncmp(line, "cables", 6)) {
        report_cables();
        return;
    } else if (!strncmp(line, "report", 6)) {
        report();
        fflush(stdout);
        return;
    } else {
        fprintf(stderr, "not understood: %s", line);
        exit(1);
    }
    puts("{}");
    fflush(stdout);
}

static int tun_of(const char *name)
{
    char place[256];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(place, sizeof place, "/run/netns/%s", name);
    int namespace = open(place, O_RDONLY | O_CLOEXEC), file;
    if (namespace < 0 || setns(namespace, CLONE_NEWNET))
        fail(place);
    close(namespace);
    if ((file = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0)
        fail("/dev/net/tun");
    strcpy(request.ifr_name, "path0");
    if (ioctl(file, TUNSETIFF, &request))
        fail("TUNSETIFF");
    return file;
}

static uint64_t next_event(void)
{
    uint64_t earliest = UINT64_MAX;
    for (int each = 0; each < used_count; each++) {
        if (used[each]->sending && used[each]->free_at < earliest)
            earliest = used[each]->free_at;
        if (used[each]->flying.first && used[each]->flying.first->due < earliest)
            earliest = used[each]->flying.first->due;
    }
    return earliest;
}

int main(int count, char **words)
{
    struct epoll_event events[MOST_HOSTS + 1];
    int poll = epoll_create1(0), own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    char line[256];
    if (count < 2 || count - 1 > MOST_HOSTS)
        return fputs("see the first lines of star.c\n", stderr), 2;
    prctl(PR_SET_TIMERSLACK, 1);
    /* A switch does not wait for its hosts' processes to leave it a processor. */
    sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 10});
    host_count = count - 1;
    for (int queue = 0; queue < QUEUES; queue++)
        thresholds[queue] = limits[queue] = 1 << 20;
    for (int host = 0; host <= host_count; host++) {
        files[host] = host ? tun_of(words[host]) : 0;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = host};
        if (epoll_ctl(poll, EPOLL_CTL_ADD, files[host], &event))
            fail("epoll_ctl");
    }
    if (own < 0 || setns(own, CLONE_NEWNET)) /* whoever ends what runs on a host does not mean this */
        fail("/proc/self/ns/net");
    puts("ready");
    fflush(stdout);
    for (;;) {
        uint64_t now = now_nanoseconds(), event = next_event();
        struct timespec wait = {0, 0};
        if (event == UINT64_MAX)
            wait.tv_sec = 1;
        else if (event > now)
            wait = (struct timespec){(event - now) / 1000000000, (event - now) % 1000000000};
        int ready = epoll_pwait2(poll, events, MOST_HOSTS + 1, &wait, NULL);
        for (int each = 0; each < ready; each++) {
            int host = events[each].data.u32;
            if (!host) {
                if (!fgets(line, sizeof line, stdin))
                    return 0;
                obey(line);
                continue;
            }
            for (int taken = 0; taken < READ_AT_ONCE; taken++) {
                struct packet *packet = fresh();
                ssize_t length = read(files[host], packet->bytes, MOST_BYTES);
                if (length <= 0) {
                    discard(packet);
                    break;
                }
                packet->length = length;
                arrive(packet, now_nanoseconds());
            }
        }
        now = now_nanoseconds();
        for (int each = 0; each < used_count; each++) {
            transmit(used[each], now);
            land(used[each], now);
        }
    }
}
