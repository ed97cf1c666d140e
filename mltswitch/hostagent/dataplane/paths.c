/* Paths of a flow: which one a burst takes, what each has carried and lost, which are dead or gray.
 *
 * An acknowledgement tells how many packets have come on a path and which was sent last among them; checkpoints of what
 * had been sent when turn that into what is still on the way, and what is lost.
 */
#include "internal.h"

static const int64_t LEAST_PATIENCE_NS = 20 * MILLISECOND; /* before silence means anything; */
static const int64_t FIRST_PATIENCE_NS = 200 * MILLISECOND; /* while no round trip is known */
static const int64_t PATH_PATIENCE_NS = 10 * MILLISECOND;  /* more, for one path of several */
static const int64_t LOOK_NS = 5 * MILLISECOND;
static const int64_t FIRST_PROBE_NS = 50 * MILLISECOND;
static const int64_t LAST_PROBE_NS = SECOND;
static const double GRAY_FACTOR = 3;    /* times the others' share of losses, */
static const double GRAY_SHARE = 0.1;   /* and so much more: then a path is gray */
enum {
    RTT_PATIENCE = 4,
    QUESTIONS = 4,     /* parts of that time; after each but the last the peer is asked */
    RTT_WEIGHT = 8,
    DEAD_PACKETS = 8,  /* without an answer */
    GRAY_PACKETS = 50, /* of a look at losses */
    GOOD_PROBES = 3,   /* in a row bring a gray path back */
};

static bool is_used(const struct path *path)
{
    return path->weight && path->state == MLT_PATH_USED;
}

/* By chance, in the ratio of the weights. -1: none is used. */
static int choose_random(struct flow *flow)
{
    uint32_t total = 0;
    for (int number = 0; number < flow->path_count; number++)
        total += is_used(&flow->paths[number]) ? flow->paths[number].weight : 0;
    uint32_t mark = (uint32_t)((random_next(&flow->core->random) >> 32) * total >> 32);
    for (int number = 0; number < flow->path_count; number++) {
        uint32_t weight = is_used(&flow->paths[number]) ? flow->paths[number].weight : 0;
        if (mark < weight)
            return number;
        mark -= weight;
    }
    return -1;
}

/* Smooth weighted round robin: each path gains its weight, the richest pays for the burst. */
static int choose_in_turn(struct flow *flow)
{
    int chosen = -1;
    int32_t total = 0;
    for (int number = 0; number < flow->path_count; number++) {
        struct path *path = &flow->paths[number];
        if (!is_used(path))
            continue;
        path->turn += path->weight;
        total += path->weight;
        if (chosen < 0 || path->turn > flow->paths[chosen].turn)
            chosen = number;
    }
    if (chosen >= 0)
        flow->paths[chosen].turn -= total;
    return chosen;
}

int path_choose(struct flow *flow)
{
    if (flow->path_count == 1)
        return 0;
    int chosen = flow->options.spray_random ? choose_random(flow) : choose_in_turn(flow);
    return chosen < 0 ? path_for_control(flow, 0) : chosen;
}

/* The wanted path, or the next that is alive; where none is, the wanted one. */
int path_for_control(const struct flow *flow, int wanted)
{
    wanted %= flow->path_count;
    for (int step = 0; step < flow->path_count; step++)
        if (flow->paths[(wanted + step) % flow->path_count].state == MLT_PATH_USED)
            return (wanted + step) % flow->path_count;
    return wanted;
}

int64_t flow_rtt(const struct flow *flow)
{
    int64_t longest_ns = 0;
    for (int path = 0; path < flow->path_count; path++)
        if (flow->paths[path].state == MLT_PATH_USED && flow->paths[path].rtt_ns > longest_ns)
            longest_ns = flow->paths[path].rtt_ns;
    return longest_ns ? longest_ns : flow->control.rtt_ns;
}

static int64_t patience_ns(const struct flow *flow)
{
    int64_t round_trips_ns = RTT_PATIENCE * flow_rtt(flow);
    if (!round_trips_ns && repairs_at_once(flow))
        return FIRST_PATIENCE_NS;
    return round_trips_ns > LEAST_PATIENCE_NS ? round_trips_ns : LEAST_PATIENCE_NS;
}

static void look_later(struct flow *flow)
{
    if (flow->timers[TIMER_HEALTH].place < 0)
        timer_set(flow->core, &flow->timers[TIMER_HEALTH], flow->core->now_ns + LOOK_NS);
}

void path_sent(struct flow *flow, int number, uint64_t stamp, uint32_t packets, uint64_t bytes)
{
    struct path *path = &flow->paths[number];
    path->sent_packets += packets;
    path->sent_bytes += bytes;
    path->sent_stamp = stamp;
    path->sent_since_heard += packets;
    if (!path->waiting_since_ns)
        path->waiting_since_ns = flow->core->now_ns;
    if (!flow->in_flight_bytes)
        flow->flight_since_ns = flow->core->now_ns;
    if (!repairs_at_once(flow)) /* there departures.c knows what is on its way, packet by packet */
        flow->in_flight_bytes += bytes;
    struct checkpoint *last = &path->checkpoints[(path->checkpoint_next + CHECKPOINTS - 1) % CHECKPOINTS];
    if (!path->checkpoint_count || path->sent_packets - last->packets >= CHECKPOINT_PACKETS) {
        path->checkpoints[path->checkpoint_next] = (struct checkpoint){stamp, path->sent_packets, path->sent_bytes};
        path->checkpoint_next = (path->checkpoint_next + 1) % CHECKPOINTS;
        path->checkpoint_count += path->checkpoint_count < CHECKPOINTS;
    }
    look_later(flow);
}

void path_probe(struct flow *flow, int number, const struct transfer *transfer, uint32_t attempt, uint8_t tos)
{
    uint8_t *header = batch_small(flow, KIND_PROBE, number, tos);
    if (!header)
        return;
    if (transfer) {
        write32(header + TENSOR_OFFSET, transfer->result.tensor);
        write32(header + ROUND_OFFSET, transfer->result.round);
        write32(header + SEQUENCE_OFFSET, attempt);
    }
    if (flow->options.has_credit)
        write32(header + SPENT_OFFSET, flow->credit.sent);
    uint64_t stamp = batch_small_done(flow, header, 0);
    path_sent(flow, number, stamp, 1, HEADER_BYTES);
}

/* ---------------------------------------------------------------------------------------------- acknowledgements */

/* So many bytes are no longer on their way. */
void path_gone(struct flow *flow, uint64_t bytes)
{
    flow->in_flight_bytes -= bytes < flow->in_flight_bytes ? bytes : flow->in_flight_bytes;
}

/* Moves what is known to have left the network on to the packet with this stamp. */
static void advance(struct flow *flow, struct path *path, uint64_t stamp)
{
    uint64_t packets = path->echoed_packets, bytes = path->echoed_bytes;
    if (stamp == path->sent_stamp) {
        packets = path->sent_packets;
        bytes = path->sent_bytes;
    } else {
        for (uint32_t back = 1; back <= path->checkpoint_count; back++) {
            const struct checkpoint *point =
                &path->checkpoints[(path->checkpoint_next + CHECKPOINTS - back) % CHECKPOINTS];
            if (point->stamp > stamp)
                continue;
            packets = point->packets;
            bytes = point->bytes;
            break;
        }
    }
    if (packets <= path->echoed_packets)
        return;
    if (!repairs_at_once(flow))
        path_gone(flow, bytes - path->echoed_bytes);
    path->echoed_packets = packets;
    path->echoed_bytes = bytes;
}

/* What was sent on a path counts as lost, and not as on its way. */
static void write_off(struct flow *flow, struct path *path)
{
    if (repairs_at_once(flow))
        departures_give_up(flow, path);
    else
        path_gone(flow, path->sent_bytes - path->echoed_bytes);
    path->echoed_packets = path->sent_packets;
    path->echoed_bytes = path->sent_bytes;
}

static void set_state(struct flow *flow, int number, uint8_t state)
{
    struct path *path = &flow->paths[number];
    path->state = state;
    path->turn = 0;
    path->good_probes = 0;
    if (state == MLT_PATH_USED) {
        path->waiting_since_ns = 0;
        path->sent_since_heard = 0;
    } else {
        path->probe_wait_ns = FIRST_PROBE_NS;
        path->probe_ns = flow->core->now_ns + FIRST_PROBE_NS;
    }
    core_event(flow->core, &(struct mlt_event){.kind = MLT_EVENT_PATH, .flow = flow->token, .path = number,
                                               .value = state});
    flow_activate(flow);
}

static void tell_sample(struct flow *flow)
{
    struct controller *controller = &flow->controller;
    if (!controller->has_sample)
        return;
    controller->sample.in_flight_bytes = flow->in_flight_bytes;
    controller->sample.window_bytes = (uint64_t)controller->window_bytes;
    core_event(flow->core, &(struct mlt_event){.kind = MLT_EVENT_SAMPLE, .flow = flow->token, .path = -1,
                                               .sample = controller->sample});
    controller->sample = (struct mlt_sample){0};
    controller->sampled_ns = flow->core->now_ns;
    controller->has_sample = false;
}

void path_acknowledged(struct flow *flow, int number, const uint8_t *datagram, int64_t arrived_ns)
{
    struct path *path = &flow->paths[number];
    uint64_t stamp = read64(datagram + SENT_OFFSET), echoed = read64(datagram + ECHOED_OFFSET);
    if (stamp <= path->ack_stamp || echoed > path->sent_stamp) {
        flow->statistics.stale++;
        return;
    }
    path->ack_stamp = stamp;
    uint32_t delivered = read32(datagram + RECEIVED_OFFSET) - path->last_received;
    uint32_t marked = read32(datagram + MARKED_OFFSET) - path->last_marked;
    if (delivered > path->sent_packets - path->acknowledged) /* duplicates, or nonsense */
        delivered = (uint32_t)(path->sent_packets - path->acknowledged);
    path->last_received = read32(datagram + RECEIVED_OFFSET);
    path->last_marked = read32(datagram + MARKED_OFFSET);
    path->acknowledged += delivered;
    path->marked += marked > delivered ? delivered : marked;
    advance(flow, path, echoed);
    uint64_t lost = path->echoed_packets > path->acknowledged ? path->echoed_packets - path->acknowledged : 0;
    uint32_t newly_lost = lost > path->lost ? (uint32_t)(lost - path->lost) : 0;
    path->lost += newly_lost;
    struct ack ack = {.now_ns = flow->core->now_ns, .echoed_ns = (int64_t)echoed,
                      .in_flight_bytes = flow->in_flight_bytes, .delivered = delivered,
                      .lost = newly_lost, .marked = marked > delivered ? delivered : marked,
                      .path = number, .is_limited = flow_has_data(flow)};
    if (path->sent_packets) {
        ack.delivered_bytes = delivered * path->sent_bytes / path->sent_packets;
        ack.lost_bytes = newly_lost * path->sent_bytes / path->sent_packets;
    }
    int64_t rtt_ns = arrived_ns - (int64_t)echoed - (int64_t)read32(datagram + HELD_OFFSET);
    if (echoed && rtt_ns > 0) {
        ack.rtt_ns = rtt_ns;
        path->rtt_ns = path->rtt_ns ? path->rtt_ns + (rtt_ns - path->rtt_ns) / RTT_WEIGHT : rtt_ns;
        if (!path->least_rtt_ns || rtt_ns < path->least_rtt_ns)
            path->least_rtt_ns = rtt_ns;
    }
    path->heard_ns = flow->flight_since_ns = flow->core->now_ns;
    path->sent_since_heard = 0;
    path->waiting_since_ns = path->sent_packets > path->echoed_packets ? flow->core->now_ns : 0;
    flow->controller.law->on_ack(&flow->controller, &ack);
    tell_sample(flow);
    flow->statistics.bandwidth_bps = flow->controller.bbr.bandwidth_bps; /* 0 unless BBR controls */
    if (repairs_at_once(flow))
        queues_told(flow);
    if (path->state == MLT_PATH_DEAD || (path->state == MLT_PATH_GRAY && ++path->good_probes >= GOOD_PROBES))
        set_state(flow, number, MLT_PATH_USED);
    flow_activate(flow);
}

/* -------------------------------------------------------------------------------------------------------- health */

static int used_paths(const struct flow *flow)
{
    int count = 0;
    for (int path = 0; path < flow->path_count; path++)
        count += is_used(&flow->paths[path]);
    return count;
}

/* It has answered nothing while another one did. */
static bool is_dead(const struct flow *flow, int number)
{
    const struct path *path = &flow->paths[number];
    if (!path->waiting_since_ns || path->sent_since_heard < DEAD_PACKETS
        || flow->core->now_ns - path->waiting_since_ns <= patience_ns(flow) + PATH_PATIENCE_NS)
        return false;
    for (int other = 0; other < flow->path_count; other++)
        if (other != number && is_used(&flow->paths[other]) && flow->paths[other].heard_ns > path->waiting_since_ns)
            return true;
    return false;
}

/* It loses much more than the others, since the last look that had enough packets. */
static bool is_gray(struct flow *flow, int number)
{
    struct path *path = &flow->paths[number];
    uint64_t others_good = 0, others_lost = 0;
    uint64_t lost = path->lost - path->period_lost;
    uint64_t packets = path->acknowledged - path->period_acknowledged + lost;
    if (packets < GRAY_PACKETS)
        return false;
    for (int other = 0; other < flow->path_count; other++)
        if (other != number && is_used(&flow->paths[other])) {
            others_good += flow->paths[other].acknowledged - flow->paths[other].period_acknowledged;
            others_lost += flow->paths[other].lost - flow->paths[other].period_lost;
        }
    if (others_good + others_lost < GRAY_PACKETS)
        return false;
    double share = (double)lost / (double)packets;
    double others_share = (double)others_lost / (double)(others_good + others_lost);
    return share > GRAY_FACTOR * others_share + GRAY_SHARE;
}

static void begin_period(struct flow *flow)
{
    for (int number = 0; number < flow->path_count; number++)
        if (is_used(&flow->paths[number])
            && flow->paths[number].acknowledged + flow->paths[number].lost
            < flow->paths[number].period_acknowledged + flow->paths[number].period_lost + GRAY_PACKETS)
            return; /* not all have had enough packets */
    for (int number = 0; number < flow->path_count; number++) {
        flow->paths[number].period_acknowledged = flow->paths[number].acknowledged;
        flow->paths[number].period_lost = flow->paths[number].lost;
    }
}

/* Nothing came back for a while: the peer is asked, for an acknowledgement may be lost alone. Nothing at all: what was on
 * its way counts as lost, and sending begins anew. */
static void look_at_flight(struct flow *flow)
{
    int64_t now_ns = flow->core->now_ns, silent_ns = now_ns - flow->flight_since_ns;
    int64_t part_ns = patience_ns(flow) / QUESTIONS;
    if (!flow->in_flight_bytes)
        return;
    if (silent_ns <= QUESTIONS * part_ns) {
        if (silent_ns < part_ns || now_ns - flow->probed_ns < part_ns)
            return;
        flow->probed_ns = now_ns;
        for (int number = 0; number < flow->path_count; number++)
            if (is_used(&flow->paths[number]) && flow->paths[number].sent_packets > flow->paths[number].echoed_packets)
                path_probe(flow, number, NULL, 0, flow->options.control_tos);
        return;
    }
    for (int number = 0; number < flow->path_count; number++)
        write_off(flow, &flow->paths[number]);
    flow->in_flight_bytes = 0;
    flow->statistics.timeouts++;
    flow->controller.law->on_timeout(&flow->controller, now_ns);
    flow_activate(flow);
}

static bool look_at_silence(struct flow *flow)
{
    int64_t now_ns = flow->core->now_ns, part_ns = flow->options.silence_ns / WATCHES;
    if (!flow->open)
        return false;
    if (now_ns - flow->looked_ns > 2 * part_ns) /* this host slept, and has not read what came meanwhile */
        flow->heard_ns = now_ns;
    flow->looked_ns = now_ns;
    int64_t silent_ns = now_ns - flow->heard_ns;
    if (silent_ns >= flow->options.silence_ns) {
        core_event(flow->core, &(struct mlt_event){.kind = MLT_EVENT_SILENT, .flow = flow->token, .path = -1});
        flow_fail(flow, MLT_PEER_SILENT, "nothing was heard of the peer");
        return true;
    }
    if (silent_ns >= part_ns && now_ns - flow->probed_ns >= part_ns) {
        flow->probed_ns = now_ns;
        for (int path = 0; path < flow->path_count; path++)
            path_probe(flow, path, NULL, 0, flow->options.control_tos);
    }
    int64_t left_ns = flow->options.silence_ns - silent_ns;
    if (flow->timers[TIMER_WATCH].place < 0)
        timer_set(flow->core, &flow->timers[TIMER_WATCH], now_ns + (left_ns < part_ns ? left_ns : part_ns));
    return false;
}

static void probe_unused(struct flow *flow, int number)
{
    struct path *path = &flow->paths[number];
    if (flow->core->now_ns < path->probe_ns)
        return;
    path_probe(flow, number, NULL, 0, flow->options.control_tos);
    write_off(flow, path); /* or its silence would look like that of all paths, and slow the flow */
    path->probe_wait_ns = 2 * path->probe_wait_ns < LAST_PROBE_NS ? 2 * path->probe_wait_ns : LAST_PROBE_NS;
    path->probe_ns = flow->core->now_ns + path->probe_wait_ns;
}

void paths_look(struct flow *flow)
{
    bool has_unused = false;
    if (flow->core->is_blocked || !batch_has_room(flow->core, MLT_MOST_PATHS * 2, 0)) {
        batch_flush(flow->core);
        if (flow->core->is_blocked) {
            timer_set(flow->core, &flow->timers[TIMER_HEALTH], flow->core->now_ns + LOOK_NS);
            return;
        }
    }
    if (look_at_silence(flow))
        return;
    look_at_flight(flow);
    for (int number = 0; number < flow->path_count; number++) {
        struct path *path = &flow->paths[number];
        if (is_used(path) && used_paths(flow) > 1) {
            if (is_dead(flow, number))
                set_state(flow, number, MLT_PATH_DEAD);
            else if (is_gray(flow, number))
                set_state(flow, number, MLT_PATH_GRAY);
        }
        if (path->state != MLT_PATH_USED) {
            has_unused = true;
            probe_unused(flow, number);
        }
    }
    begin_period(flow);
    if (flow->in_flight_bytes || (has_unused && flow->open))
        look_later(flow);
}
