/* Rate control: how fast a flow may send, and how much may be on its way, decided by round trips and losses.
 *
 * TIMELY as MLT sets it (section 4.2.3; Mittal et al., SIGCOMM 2015, algorithm 1): below T_low the rate grows by alpha,
 * above T_high it shrinks by beta · (1 - T_high / round trip), between them the gradient decides. Made fit for kernels
 * and for unknown queues: the least round trip of each step counts (a queue delays every packet, a scheduler some),
 * thresholds lie a host's noise above the base round trip where nobody sets them, and losses above a share cut as well,
 * to what was delivered meanwhile. A window doubles from a small start, so that an incast does not begin blindly.
 */
#include "internal.h"

static const double DEFAULT_CAP_BPS = 100e9;
static const double DEFAULT_INCREASE_BPS = 40e6;
static const double DEFAULT_DECREASE = 0.8;
static const double FLOOR_SHARE = 0.001;
static const double LEAST_FLIGHT_BYTES = 3000; /* a round trip: who hears too seldom of the network cannot grow again */
static const double LEAST_KEPT = 0.5;          /* of the rate, by one step */
static const double GRADIENT_WEIGHT = 0.1;     /* of a new difference */
static const double GROWTH = 0.25;             /* of a low rate, by one step below T_low */
static const double GROWTH_BELOW = 0.25;       /* of the cap: rates above grow by alpha alone */
static const double HYPERACTIVE_FACTOR = 5;    /* times alpha, after several increases in a row */
static const double LOSS_SHARE = 0.02;         /* of a round trip's packets: more is congestion */
static const double KEPT_AT_LOSS = 0.8;        /* of the rate that was delivered */
static const double CAUTION = 0.03;            /* of the rate, by one step, near the rate of a loss; later: */
static const double COURAGE = 0.10;
static const double APPROACH = 0.25;           /* of the way back to it, by one step */
static const double LOST_KEPT = 0.7;           /* of that rate, when packets are lost again: it may be slow by then */
static const double FALLEN = 0.1;              /* of the rate, by decreases in a row, while */
static const double STAYED = 0.75;             /* of the round trip is left */
static const double TEST_RATE = 0.5;           /* of what was sent before, */
static const double TEST_SHARE = 0.7;          /* and so much of the losses before: no queue of ours */
static const double RANDOM_MARGIN = 1.5;       /* times such losses */
static const int64_t RANDOM_NS = 2 * SECOND;   /* they are believed in for so long */
static const double WINDOW_GROWTH = 1.25;      /* a step, once it no longer doubles; after a loss: */
static const double LATER_WINDOW_GROWTH = 1.1;
static const double INITIAL_SECONDS = 0.001;   /* at the cap: several senders begin together */
static const double LEAST_INITIAL_BYTES = 8 << 10;
static const int64_t IDLE_NS = 10 * MILLISECOND; /* and several round trips: then the network may have changed */
static const int64_t NOISE_NS = 500 * MICROSECOND; /* that scheduling adds to the least of a few round trips */
static const int64_t BASE_WINDOW_NS = 5 * SECOND;  /* routes change: a base is forgotten after one or two of these */
enum {
    DEFAULT_WINDOW_BYTES = 2 << 20,
    MOST_INITIAL_BYTES = 64 << 10,
    IDLE_ROUND_TRIPS = 8,
    HYPERACTIVE_AFTER = 5,
    COURAGE_AFTER = 10,
    LOSS_PACKETS = 20, /* fewer tell nothing, and */
    LOOK_PACKETS = 100, /* so many are enough, or */
    SOME_LOST = 4,      /* so many losses */
    TESTS = 3,
    BITS = 8,
};

static double least(double one, double other)
{
    return one < other ? one : other;
}

static double most(double one, double other)
{
    return one > other ? one : other;
}

static double limited(const struct controller *controller, double rate_bps)
{
    return most(controller->floor_bps, least(controller->cap_bps, rate_bps));
}

/* -------------------------------------------------------------------------------------------------------- TIMELY */

static void learn_base(struct controller *controller, const struct ack *ack)
{
    if (ack->now_ns - controller->base_since_ns >= BASE_WINDOW_NS) {
        controller->older_base_rtt_ns = controller->newer_base_rtt_ns;
        controller->newer_base_rtt_ns = 0;
        controller->base_since_ns = ack->now_ns;
    }
    if (!controller->newer_base_rtt_ns || ack->rtt_ns < controller->newer_base_rtt_ns)
        controller->newer_base_rtt_ns = ack->rtt_ns;
    controller->base_rtt_ns = controller->newer_base_rtt_ns;
    if (controller->older_base_rtt_ns && controller->older_base_rtt_ns < controller->base_rtt_ns)
        controller->base_rtt_ns = controller->older_base_rtt_ns;
}

/* A delay that stays while the flow slows down to a fraction is no queue of its own: the route has become longer, the
 * queue is others', or a base was measured wrongly. To slow down further would help nobody. */
static void doubt_base(struct controller *controller, int64_t rtt_ns)
{
    if (controller->falling_bps <= 0) {
        controller->falling_bps = controller->rate_bps;
        controller->falling_rtt_ns = rtt_ns;
    } else if (controller->rate_bps < FALLEN * controller->falling_bps) {
        if ((double)rtt_ns > STAYED * (double)controller->falling_rtt_ns) {
            controller->base_rtt_ns = controller->newer_base_rtt_ns = rtt_ns;
            controller->older_base_rtt_ns = 0;
        }
        controller->falling_bps = 0;
    }
}

static int64_t low_ns(const struct controller *controller)
{
    int64_t base_ns = controller->base_rtt_ns;
    if (controller->options.low_ns)
        return base_ns + controller->options.low_ns;
    return base_ns + (base_ns / 4 > NOISE_NS ? base_ns / 4 : NOISE_NS);
}

static int64_t high_ns(const struct controller *controller)
{
    int64_t base_ns = controller->base_rtt_ns;
    if (controller->options.high_ns)
        return base_ns + controller->options.high_ns;
    return low_ns(controller) + (base_ns > NOISE_NS ? base_ns : NOISE_NS);
}

static void increase(struct controller *controller, double least_bps)
{
    bool is_hyperactive = controller->increases++ >= HYPERACTIVE_AFTER;
    controller->falling_bps = 0;
    double step_bps = most(least_bps, controller->options.increase_bps * (is_hyperactive ? HYPERACTIVE_FACTOR : 1));
    if (controller->has_lost) {
        double careful_bps = controller->rate_bps * (controller->increases > COURAGE_AFTER ? COURAGE : CAUTION);
        step_bps = least(step_bps, most(careful_bps, APPROACH * (controller->lost_bps - controller->rate_bps)));
    }
    controller->rate_bps = limited(controller, controller->rate_bps + step_bps);
}

/* To no less than a few packets a round trip, which grows with the queue. */
static void slow_down(struct controller *controller, double rate_bps, int64_t rtt_ns, int64_t now_ns)
{
    double least_bps = least(controller->rate_bps, LEAST_FLIGHT_BYTES * BITS * (double)SECOND / (double)(rtt_ns + 1));
    controller->increases = 0;
    controller->slowed_ns = now_ns;
    controller->rate_bps = limited(controller, most(least_bps, rate_bps));
}

static void decrease(struct controller *controller, double severity, int64_t rtt_ns, int64_t now_ns)
{
    double kept = most(LEAST_KEPT, 1 - controller->options.decrease * severity);
    doubt_base(controller, rtt_ns);
    slow_down(controller, controller->rate_bps * kept, rtt_ns, now_ns);
}

static void timely_step(struct controller *controller, int64_t rtt_ns, int64_t now_ns)
{
    double difference_ns = controller->previous_rtt_ns ? (double)(rtt_ns - controller->previous_rtt_ns) : 0;
    int64_t low = low_ns(controller), high = high_ns(controller);
    controller->previous_rtt_ns = rtt_ns;
    controller->gradient_ns = (1 - GRADIENT_WEIGHT) * controller->gradient_ns + GRADIENT_WEIGHT * difference_ns;
    if (rtt_ns > high)
        decrease(controller, 1 - (double)high / (double)rtt_ns, rtt_ns, now_ns);
    else if (rtt_ns < low)
        increase(controller, controller->rate_bps < GROWTH_BELOW * controller->cap_bps
                     ? GROWTH * controller->rate_bps
                     : 0);
    else if (controller->gradient_ns <= 0)
        increase(controller, 0);
    else
        decrease(controller, controller->gradient_ns / (double)low, rtt_ns, now_ns);
    if (!controller->is_starting && rtt_ns <= high)
        controller->window_bytes = least(controller->most_window_bytes,
                                         controller->window_bytes
                                             * (controller->has_lost ? LATER_WINDOW_GROWTH : WINDOW_GROWTH));
}

/* Whether losses stay the same when much less is sent: then it is not our queue that loses, and to slow down further
 * would help nobody. */
static bool is_random(struct controller *controller, double offered_bps)
{
    uint32_t lost = controller->loss_lost, packets = controller->loss_delivered + lost;
    struct losses *before = &controller->tested, *since = &controller->slower;
    if (controller->tested_bps <= 0 || offered_bps > controller->tested_bps) {
        controller->tested_bps = offered_bps;
        *before = (struct losses){lost, packets, 1};
        *since = (struct losses){0};
        return false;
    }
    struct losses *of = offered_bps < TEST_RATE * controller->tested_bps ? since : before;
    *of = (struct losses){of->lost + lost, of->packets + packets, of->looks + 1};
    if (since->looks < TESTS || since->packets < LOOK_PACKETS)
        return false;
    controller->random_share = (double)since->lost / since->packets;
    if (controller->random_share * before->packets >= TEST_SHARE * before->lost) {
        controller->tested_bps = 0;
        return true;
    }
    controller->tested_bps = offered_bps; /* it did help: once more from here */
    *before = *since;
    *since = (struct losses){0};
    controller->random_share = 0;
    return false;
}

static void cut(struct controller *controller, const struct ack *ack, double delivered_bps)
{
    double rate_bps = ack->is_limited ? least(controller->rate_bps, delivered_bps) : controller->rate_bps;
    controller->lost_bps = most(controller->rate_bps, LOST_KEPT * controller->lost_bps);
    slow_down(controller, KEPT_AT_LOSS * rate_bps, ack->rtt_ns, ack->now_ns);
    controller->window_bytes = most(controller->initial_window_bytes, KEPT_AT_LOSS * controller->window_bytes);
    controller->has_lost = true;
    controller->is_starting = false;
    controller->cut_ns = ack->now_ns;
}

/* Losses of about a round trip at once: more than a share of them is a queue that has no room. */
static void look_at_losses(struct controller *controller, const struct ack *ack)
{
    int64_t took_ns = ack->now_ns - controller->loss_since_ns;
    uint32_t packets = controller->loss_delivered + controller->loss_lost;
    bool are_many = packets >= LOOK_PACKETS || controller->loss_lost >= SOME_LOST;
    if (packets < LOSS_PACKETS || took_ns < ack->rtt_ns || !are_many)
        return;
    double delivered_bps = (double)controller->loss_bytes * BITS * (double)SECOND / (double)(took_ns + 1);
    double share = (double)controller->loss_lost / packets;
    if (ack->now_ns > controller->random_until_ns)
        controller->random_share = 0;
    if (share < LOSS_SHARE) {
        controller->tested_bps = 0;
    } else if (share > LOSS_SHARE + RANDOM_MARGIN * controller->random_share) {
        if (is_random(controller, delivered_bps / (1 - share + FLOOR_SHARE)))
            controller->random_until_ns = ack->now_ns + RANDOM_NS;
        else
            cut(controller, ack, delivered_bps);
    }
    controller->loss_since_ns = ack->now_ns;
    controller->loss_bytes = controller->loss_delivered = controller->loss_lost = 0;
}

static void timely_ack(struct controller *controller, const struct ack *ack)
{
    controller->acknowledged_ns = ack->now_ns;
    if (controller->is_starting)
        controller->window_bytes = least(controller->most_window_bytes,
                                         controller->window_bytes + (double)ack->delivered_bytes);
    if (!controller->loss_since_ns || ack->now_ns - controller->loss_since_ns > SECOND)
        controller->loss_since_ns = ack->now_ns - ack->rtt_ns;
    if (ack->echoed_ns > controller->cut_ns) { /* else it speaks of what left before the last cut */
        controller->loss_bytes += ack->delivered_bytes;
        controller->loss_delivered += ack->delivered;
        controller->loss_lost += ack->lost;
    } else {
        controller->loss_since_ns = ack->now_ns;
    }
    if (!ack->rtt_ns)
        return;
    learn_base(controller, ack);
    look_at_losses(controller, ack);
    if (ack->echoed_ns <= controller->slowed_ns)
        return;
    if (!controller->step_rtt_ns || ack->rtt_ns < controller->step_rtt_ns)
        controller->step_rtt_ns = ack->rtt_ns;
    if (ack->now_ns - controller->step_ns < controller->step_rtt_ns)
        return;
    if (controller->is_starting && controller->step_rtt_ns > high_ns(controller)) {
        controller->is_starting = false;
        controller->window_bytes = most(controller->initial_window_bytes,
                                        (double)(ack->in_flight_bytes + ack->delivered_bytes));
    }
    timely_step(controller, controller->step_rtt_ns, ack->now_ns);
    controller->step_ns = ack->now_ns;
    controller->step_rtt_ns = 0;
}

static void timely_timeout(struct controller *controller, int64_t now_ns)
{
    controller->window_bytes = controller->initial_window_bytes;
    controller->is_starting = true;
    controller->rate_bps = limited(controller, LEAST_KEPT * controller->rate_bps);
    controller->increases = 0;
    controller->loss_since_ns = now_ns;
    controller->loss_bytes = controller->loss_delivered = controller->loss_lost = 0;
}

/* Others may have begun meanwhile: the window does, too. The rate stays. */
static void timely_wake(struct controller *controller, int64_t now_ns)
{
    int64_t idle_ns = now_ns - controller->acknowledged_ns;
    if (idle_ns < IDLE_NS || idle_ns < IDLE_ROUND_TRIPS * controller->previous_rtt_ns)
        return;
    controller->window_bytes = least(controller->window_bytes, controller->initial_window_bytes);
    controller->is_starting = true;
    controller->has_lost = false;
}

static const struct control_law TIMELY = {timely_ack, timely_timeout, timely_wake};

/* -------------------------------------------------------------------------------------------------------- credit */

/* The receiver decides (credit.c); BBR's model only says what the network is like. */
static void credit_ack(struct controller *controller, const struct ack *ack)
{
    BBR.on_ack(controller, ack);
    controller->rate_bps = controller->cap_bps;
    controller->window_bytes = controller->most_window_bytes;
    controller->depth_bytes = 0;
}

static void nothing(struct controller *controller, int64_t now_ns)
{
    (void)controller;
    (void)now_ns;
}

static const struct control_law CREDIT = {credit_ack, nothing, nothing};

/* ------------------------------------------------------------------------------------------------------ external */

static void external_ack(struct controller *controller, const struct ack *ack)
{
    struct mlt_sample *sample = &controller->sample;
    sample->delivered_bytes += ack->delivered_bytes;
    sample->delivered_packets += ack->delivered;
    sample->lost_packets += ack->lost;
    sample->marked_packets += ack->marked;
    if (ack->rtt_ns && (!sample->least_rtt_ns || ack->rtt_ns < sample->least_rtt_ns))
        sample->least_rtt_ns = ack->rtt_ns;
    controller->window_bytes = least(controller->most_window_bytes,
                                     controller->window_bytes + (double)ack->delivered_bytes);
    if (ack->rtt_ns)
        learn_base(controller, ack);
    if (!controller->sampled_ns)
        controller->sampled_ns = ack->now_ns;
    if (ack->now_ns - controller->sampled_ns >= controller->options.sample_ns) {
        sample->interval_ns = ack->now_ns - controller->sampled_ns;
        controller->has_sample = true; /* paths.c tells of it and begins the next */
    }
}

static void external_timeout(struct controller *controller, int64_t now_ns)
{
    (void)now_ns;
    controller->window_bytes = controller->initial_window_bytes;
}

static const struct control_law EXTERNAL = {external_ack, external_timeout, timely_wake};

/* ---------------------------------------------------------------------------------------------------------- both */

void controller_init(struct controller *controller, const struct mlt_rate_options *options)
{
    *controller = (struct controller){.window_bytes = MOST_INITIAL_BYTES, .is_starting = true};
    controller_set(controller, options);
    if (options->kind != MLT_CREDIT)
        controller->window_bytes = controller->initial_window_bytes;
    controller->rate_bps = options->kind == MLT_EXTERNAL ? options->rate_bps : controller->cap_bps;
    controller->rate_bps = limited(controller, controller->rate_bps);
}

/* While the flow is open: what was learned stays. */
void controller_set(struct controller *controller, const struct mlt_rate_options *options)
{
    controller->options = *options;
    controller->law = options->kind == MLT_EXTERNAL ? &EXTERNAL
        : options->kind == MLT_BBR ? &BBR
        : options->kind == MLT_CREDIT ? &CREDIT : &TIMELY;
    controller->depth_bytes = 0; /* a law that wants one sets it */
    controller->cap_bps = options->cap_bps > 0 ? options->cap_bps : DEFAULT_CAP_BPS;
    controller->floor_bps = options->floor_bps > 0 ? options->floor_bps : FLOOR_SHARE * controller->cap_bps;
    controller->floor_bps = least(controller->floor_bps, controller->cap_bps);
    controller->most_window_bytes = options->window_bytes ? options->window_bytes : DEFAULT_WINDOW_BYTES;
    double initial_bytes = least(MOST_INITIAL_BYTES, INITIAL_SECONDS * controller->cap_bps / BITS);
    controller->initial_window_bytes = least(controller->most_window_bytes,
                                             options->initial_window_bytes ? options->initial_window_bytes
                                             : most(LEAST_INITIAL_BYTES, initial_bytes));
    controller->window_bytes = options->kind == MLT_CREDIT
        ? controller->most_window_bytes : least(controller->window_bytes, controller->most_window_bytes);
    if (!(controller->options.increase_bps > 0))
        controller->options.increase_bps = DEFAULT_INCREASE_BPS;
    if (!(controller->options.decrease > 0 && controller->options.decrease <= 1))
        controller->options.decrease = DEFAULT_DECREASE;
    if (options->kind == MLT_EXTERNAL)
        controller->rate_bps = options->rate_bps;
    controller->rate_bps = limited(controller, controller->rate_bps);
}
