/* BBR (Cardwell et al., ACM Queue 2016; LTP, section III-D): rate and window from the most that was delivered in a round
 * trip, and the least round trip. Losses are no signal for the rate.
 *
 * Acknowledgements carry counts, so one sample is what was delivered between the acknowledgement that was the last one
 * when a packet left, and the packet's own: an interval of a round trip at least, however acknowledgements are lumped.
 *
 * Losses are answered, as by the kernel's, by a round trip in which no more leaves than arrives: else a flow of ours keeps
 * the queue full that it shares with others, and only the others make room.
 */
#include "internal.h"

static const double STARTUP_GAIN = 2.885;   /* 2 / ln 2: the rate doubles in a round trip */
static const double FULL_GROWTH = 1.25;     /* of three round trips: less, and the pipe is full */
static const double CYCLE[] = {1.25, 0.75, 1, 1, 1, 1, 1, 1};
static const double DEFAULT_INFLIGHT_GAIN = 2;
static const int64_t BASE_NS = 10 * SECOND; /* the longest without a look at an empty queue */
static const double QUANTUM_SECONDS = 0.001; /* what is delivered in so long is a quantum */
static const double MOST_LOST_SHARE = 0.02; /* of a look; more, and buffers are too small for many quanta */
static const double QUANTA_GROWTH = 0.25;   /* a look */
static const int64_t PROBE_NS = 200 * MILLISECOND;
enum {
    FULL_ROUNDS = 3,
    LEAST_QUANTA = 3, /* that may be on the way beside what the network holds */
    MOST_QUANTA = 6,
    LOOK_PACKETS = 64,
    LEAST_WINDOW_BYTES = 4 * 1500,
    CYCLES = sizeof CYCLE / sizeof *CYCLE,
    BITS = 8,
};

static double bdp_bytes(const struct bbr *bbr)
{
    return bbr->bandwidth_bps / BITS * (double)bbr->base_rtt_ns / (double)SECOND;
}

static void remember(struct bbr *bbr, const struct ack *ack)
{
    struct delivery *last = &bbr->deliveries[(bbr->next + DELIVERIES - 1) % DELIVERIES];
    if (bbr->count && ack->now_ns - last->at_ns < bbr->base_rtt_ns / (DELIVERIES / 4))
        return; /* enough for a few round trips */
    bbr->deliveries[bbr->next] = (struct delivery){ack->now_ns, ack->echoed_ns, bbr->delivered_bytes,
                                                        ack->path, !ack->is_limited};
    bbr->next = (bbr->next + 1) % DELIVERIES;
    bbr->count += bbr->count < DELIVERIES;
}

/* What was delivered since the newest packet that the acknowledgement speaks of left, over the time in which it arrived or
 * the one in which it was sent, whichever is longer: a queue of others may let many arrive at once. */
static void sample(struct bbr *bbr, const struct ack *ack)
{
    for (uint32_t back = 1; back <= bbr->count; back++) {
        const struct delivery *then = &bbr->deliveries[(bbr->next + DELIVERIES - back) % DELIVERIES];
        if (then->at_ns > ack->echoed_ns && back < bbr->count)
            continue;
        int64_t took_ns = ack->now_ns - then->at_ns;
        if (took_ns < bbr->base_rtt_ns)
            return;
        if (then->echoed_ns && then->path == ack->path && ack->echoed_ns - then->echoed_ns > took_ns)
            took_ns = ack->echoed_ns - then->echoed_ns;
        double found_bps = (double)(bbr->delivered_bytes - then->bytes) * BITS * (double)SECOND / (double)took_ns;
        double *most_bps = &bbr->most_bps[bbr->round % BANDWIDTH_ROUNDS];
        if (found_bps > *most_bps && ((ack->is_limited && !then->is_ours) || found_bps > bbr->bandwidth_bps))
            *most_bps = found_bps; /* where the sender itself was the limit, a sample never lowers */
        return;
    }
}

static void begin_round(struct bbr *bbr, const struct ack *ack)
{
    bool is_limited = ack->is_limited;
    bbr->round_ns = ack->now_ns;
    bbr->has_round = true;
    if (is_limited || bbr->most_bps[bbr->round % BANDWIDTH_ROUNDS] > 0) { /* rounds without a sample age nothing */
        bbr->round++;
        bbr->most_bps[bbr->round % BANDWIDTH_ROUNDS] = 0;
    }
    if (bbr->state != BBR_STARTUP || !is_limited)
        return;
    if (bbr->bandwidth_bps >= FULL_GROWTH * bbr->full_bps) {
        bbr->full_bps = bbr->bandwidth_bps;
        bbr->full_rounds = 0;
    } else if (++bbr->full_rounds >= FULL_ROUNDS) {
        bbr->state = BBR_DRAIN;
    }
}

static void begin_window(struct bbr *bbr, int64_t now_ns)
{
    bbr->older_base_rtt_ns = bbr->newer_base_rtt_ns;
    bbr->newer_base_rtt_ns = 0;
    bbr->window_ns = now_ns;
}

/* Whoever pauses sees an empty queue after each pause; only who never does empties it to look. */
static void learn_base(struct bbr *bbr, const struct ack *ack)
{
    if (!bbr->empty_ns || !ack->in_flight_bytes || ack->rtt_ns <= bbr->base_rtt_ns)
        bbr->empty_ns = ack->now_ns;
    if (!bbr->newer_base_rtt_ns || ack->rtt_ns < bbr->newer_base_rtt_ns)
        bbr->newer_base_rtt_ns = ack->rtt_ns;
    bool is_older = bbr->older_base_rtt_ns && bbr->older_base_rtt_ns < bbr->newer_base_rtt_ns;
    bbr->base_rtt_ns = is_older ? bbr->older_base_rtt_ns : bbr->newer_base_rtt_ns;
    if (ack->now_ns - bbr->empty_ns <= BASE_NS || bbr->state == BBR_PROBE_RTT)
        return;
    begin_window(bbr, ack->now_ns);
    bbr->resumed = bbr->state == BBR_STARTUP ? BBR_STARTUP : BBR_PROBE_BANDWIDTH;
    bbr->state = BBR_PROBE_RTT;
    bbr->state_ns = ack->now_ns;
}

static void end_probe(struct bbr *bbr)
{
    bbr->state = bbr->resumed;
    bbr->cycle = 2;
}

static void step(struct bbr *bbr, const struct ack *ack)
{
    int64_t since_ns = ack->now_ns - bbr->state_ns;
    double in_flight = (double)ack->in_flight_bytes, bdp = bdp_bytes(bbr);
    switch (bbr->state) {
    case BBR_STARTUP:
        return;
    case BBR_DRAIN:
        if (in_flight > bdp)
            return;
        bbr->state = BBR_PROBE_BANDWIDTH;
        bbr->cycle = 2;
        break;
    case BBR_PROBE_BANDWIDTH:
        if (since_ns <= bbr->base_rtt_ns && !(CYCLE[bbr->cycle] < 1 && in_flight <= bdp))
            return;
        if (CYCLE[bbr->cycle] > 1 && in_flight < CYCLE[bbr->cycle] * bdp && ack->is_limited && !ack->lost
            && since_ns < 2 * bbr->base_rtt_ns)
            return;
        bbr->cycle = (bbr->cycle + 1) % CYCLES;
        break;
    case BBR_PROBE_RTT:
        if (since_ns < PROBE_NS + bbr->base_rtt_ns)
            return;
        bbr->empty_ns = ack->now_ns;
        bbr->older_base_rtt_ns = bbr->newer_base_rtt_ns;
        end_probe(bbr);
        break;
    }
    bbr->state_ns = ack->now_ns;
}

static double limited(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

static double quanta_bytes(const struct bbr *bbr)
{
    double quantum = limited(QUANTUM_SECONDS * bbr->bandwidth_bps / BITS, 0, MLT_BURST_BYTES);
    return (LEAST_QUANTA + bbr->more_quanta) * quantum;
}

/* What may be on the way: a share of what a round trip carries, and what hosts hold that run a little late. */
static double target_bytes(const struct bbr *bbr, double gain)
{
    return gain * bdp_bytes(bbr) + quanta_bytes(bbr);
}

/* Late hosts need many quanta, many flows into a small buffer have no room for them. */
static void look_at_losses(struct bbr *bbr, const struct ack *ack)
{
    bbr->look_packets += ack->delivered + ack->lost;
    bbr->look_lost += ack->lost;
    if (bbr->look_packets < LOOK_PACKETS)
        return;
    bool is_much = bbr->look_lost > MOST_LOST_SHARE * bbr->look_packets;
    bbr->more_quanta = limited(bbr->more_quanta + (is_much ? -1 : QUANTA_GROWTH), 0, MOST_QUANTA - LEAST_QUANTA);
    bbr->look_packets = bbr->look_lost = 0;
}

static void decide(struct controller *controller, uint64_t delivered_bytes)
{
    struct bbr *bbr = &controller->bbr;
    double gain = controller->options.inflight_gain > 0 ? controller->options.inflight_gain : DEFAULT_INFLIGHT_GAIN;
    double window = target_bytes(bbr, gain), rate_bps = CYCLE[bbr->cycle] * bbr->bandwidth_bps;
    switch (bbr->state) {
    case BBR_STARTUP: /* both only grow */
        window = controller->window_bytes;
        if (window < target_bytes(bbr, STARTUP_GAIN))
            window += (double)delivered_bytes;
        rate_bps = STARTUP_GAIN * bbr->bandwidth_bps;
        if (rate_bps < controller->rate_bps)
            rate_bps = controller->rate_bps;
        break;
    case BBR_DRAIN:
        window = target_bytes(bbr, STARTUP_GAIN);
        rate_bps = bbr->bandwidth_bps / STARTUP_GAIN;
        break;
    case BBR_PROBE_BANDWIDTH:
        break;
    case BBR_PROBE_RTT:
        window = LEAST_WINDOW_BYTES;
        rate_bps = bbr->bandwidth_bps;
        break;
    }
    controller->depth_bytes = quanta_bytes(bbr) / 2;
    controller->window_bytes = limited(window, LEAST_WINDOW_BYTES, controller->most_window_bytes);
    controller->rate_bps = limited(rate_bps, controller->floor_bps, controller->cap_bps);
}

/* For a round trip after a loss, no more leaves than is delivered, or what fills the pipe; but now and then a flow has to
 * look for more, or what is lost would count as what the network cannot carry. */
static void conserve(struct controller *controller, const struct ack *ack)
{
    struct bbr *bbr = &controller->bbr;
    double left_bytes = (double)(ack->in_flight_bytes + ack->delivered_bytes);
    if (bbr->state == BBR_STARTUP || bbr->state == BBR_PROBE_RTT)
        return;
    if (bbr->conserves && ack->echoed_ns < bbr->lost_ns) {
        bbr->kept_bytes -= (double)ack->lost_bytes;
        if (bbr->kept_bytes < left_bytes)
            bbr->kept_bytes = left_bytes;
    } else {
        bbr->conserves = ack->lost && ack->echoed_ns >= bbr->lost_ns;
        bbr->kept_bytes = left_bytes;
        if (bbr->conserves)
            bbr->lost_ns = ack->now_ns;
    }
    bool looks_for_more = bbr->state == BBR_PROBE_BANDWIDTH && CYCLE[bbr->cycle] > 1;
    if (bbr->conserves && !looks_for_more)
        controller->window_bytes = limited(bbr->kept_bytes, target_bytes(bbr, 1), controller->window_bytes);
}

static void bbr_ack(struct controller *controller, const struct ack *ack)
{
    struct bbr *bbr = &controller->bbr;
    bbr->delivered_bytes += ack->delivered_bytes + ack->delivered * WIRE_OVERHEAD_BYTES; /* as pacing counts */
    look_at_losses(bbr, ack);
    if (ack->rtt_ns) {
        if (!bbr->base_rtt_ns) /* the rate was the cap until the first round trip is known */
            controller->rate_bps = STARTUP_GAIN * controller->window_bytes * BITS * (double)SECOND / (double)ack->rtt_ns;
        learn_base(bbr, ack);
        sample(bbr, ack);
        bbr->bandwidth_bps = 0;
        for (int round = 0; round < BANDWIDTH_ROUNDS; round++)
            if (bbr->most_bps[round] > bbr->bandwidth_bps)
                bbr->bandwidth_bps = bbr->most_bps[round];
        if (!bbr->has_round || ack->echoed_ns >= bbr->round_ns)
            begin_round(bbr, ack);
        step(bbr, ack);
    }
    remember(bbr, ack);
    controller->base_rtt_ns = bbr->base_rtt_ns;
    decide(controller, ack->delivered_bytes);
    conserve(controller, ack);
}

/* What is known of the network stays; the next acknowledgements set the window again. */
static void bbr_timeout(struct controller *controller, int64_t now_ns)
{
    (void)now_ns;
    controller->window_bytes = controller->initial_window_bytes;
}

static void bbr_wake(struct controller *controller, int64_t now_ns)
{
    struct bbr *bbr = &controller->bbr;
    bbr->empty_ns = now_ns;
    bbr->conserves = false;
    if (bbr->state == BBR_PROBE_RTT)
        end_probe(bbr);
    if (bbr->state == BBR_PROBE_BANDWIDTH)
        decide(controller, 0);
    if (now_ns - bbr->window_ns > BASE_NS / 2)
        begin_window(bbr, now_ns);
}

const struct control_law BBR = {bbr_ack, bbr_timeout, bbr_wake};
