/* Rate control of a sender: how fast a flow may send, and how much may be on its way.
 *
 * `timely` is what MLT prints (section 4.2.3): below T_low, or while the round trip falls, the rate grows by alpha; above
 * T_high it shrinks by beta · (1 - T_high / round trip); between them, where MLT is silent, TIMELY's own gradient decides
 * (Mittal et al., SIGCOMM 2015, algorithm 1). Made fit for kernels: the least round trip of each step counts, as a queue
 * delays every packet and a scheduler some, and thresholds lie above the least round trip seen. With `credit` the receiver
 * decides (credit.c), `bbr` is in bbr.c, and an external controller hears samples.
 */
#include "internal.h"

static const double DEFAULT_CAP_BPS = 100e9;
static const double DEFAULT_INCREASE_BPS = 40e6;
static const double DEFAULT_DECREASE = 0.8;
static const double FLOOR_SHARE = 0.001;
static const double LEAST_FLIGHT_BYTES = 3000; /* a round trip: who hears too seldom of the network cannot grow again */
static const double LEAST_KEPT = 0.5;          /* of the rate, by one step */
static const double GRADIENT_WEIGHT = 0.1;     /* of a new difference */
static const double HYPERACTIVE_FACTOR = 5;    /* times alpha, after several increases in a row */
static const double INITIAL_SECONDS = 0.001;   /* at the cap: several senders begin together */
static const double LEAST_INITIAL_BYTES = 8 << 10;
static const int64_t IDLE_NS = 10 * MILLISECOND; /* then others may have begun meanwhile */
static const int64_t NOISE_NS = 500 * MICROSECOND; /* that scheduling adds to the least of a few round trips */
static const int64_t BASE_WINDOW_NS = 5 * SECOND;  /* routes change: a base is forgotten after one or two of these */
enum {
    DEFAULT_WINDOW_BYTES = 2 << 20,
    MOST_INITIAL_BYTES = 64 << 10,
    HYPERACTIVE_AFTER = 5,
    BITS = 8,
};

static double limited(const struct controller *controller, double rate_bps)
{
    return most(controller->floor_bps, least(controller->cap_bps, rate_bps));
}

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

/* The window begins small, so that an incast does not begin blindly, and grows by what is delivered. */
static void grow_window(struct controller *controller, const struct ack *ack)
{
    controller->window_bytes = least(controller->most_window_bytes,
                                     controller->window_bytes + (double)ack->delivered_bytes);
    controller->acknowledged_ns = ack->now_ns;
}

static void begin_window(struct controller *controller, int64_t now_ns)
{
    (void)now_ns;
    controller->window_bytes = least(controller->window_bytes, controller->initial_window_bytes);
}

static void wake(struct controller *controller, int64_t now_ns)
{
    if (now_ns - controller->acknowledged_ns > IDLE_NS)
        begin_window(controller, now_ns);
}

/* -------------------------------------------------------------------------------------------------------- TIMELY */

static void timely_step(struct controller *controller, int64_t rtt_ns, int64_t now_ns)
{
    int64_t base_ns = controller->base_rtt_ns, noise_ns = base_ns / 4 > NOISE_NS ? base_ns / 4 : NOISE_NS;
    int64_t low_ns = base_ns + (controller->options.low_ns ? controller->options.low_ns : noise_ns);
    int64_t high_ns = controller->options.high_ns ? base_ns + controller->options.high_ns : low_ns + noise_ns;
    double difference_ns = controller->previous_rtt_ns ? (double)(rtt_ns - controller->previous_rtt_ns) : 0;
    controller->previous_rtt_ns = rtt_ns;
    controller->gradient_ns = (1 - GRADIENT_WEIGHT) * controller->gradient_ns + GRADIENT_WEIGHT * difference_ns;
    if (rtt_ns <= high_ns && (rtt_ns < low_ns || controller->gradient_ns <= 0)) {
        bool is_hyperactive = controller->increases++ >= HYPERACTIVE_AFTER;
        double step_bps = controller->options.increase_bps * (is_hyperactive ? HYPERACTIVE_FACTOR : 1);
        controller->rate_bps = limited(controller, controller->rate_bps + step_bps);
        return;
    }
    double severity = rtt_ns > high_ns ? 1 - (double)high_ns / (double)rtt_ns : controller->gradient_ns / (double)low_ns;
    double kept = most(LEAST_KEPT, 1 - controller->options.decrease * severity);
    double least_bps = least(controller->rate_bps, LEAST_FLIGHT_BYTES * BITS * (double)SECOND / (double)(rtt_ns + 1));
    controller->increases = 0;
    controller->slowed_ns = now_ns;
    controller->rate_bps = limited(controller, most(least_bps, kept * controller->rate_bps));
}

static void timely_ack(struct controller *controller, const struct ack *ack)
{
    grow_window(controller, ack);
    if (!ack->rtt_ns)
        return;
    learn_base(controller, ack);
    if (ack->echoed_ns <= controller->slowed_ns)
        return; /* it left before the last decrease, and says nothing of it */
    if (!controller->step_rtt_ns || ack->rtt_ns < controller->step_rtt_ns)
        controller->step_rtt_ns = ack->rtt_ns;
    if (ack->now_ns - controller->step_ns < controller->step_rtt_ns)
        return;
    timely_step(controller, controller->step_rtt_ns, ack->now_ns);
    controller->step_ns = ack->now_ns;
    controller->step_rtt_ns = 0;
}

/* Nothing came back at all. */
static void timely_timeout(struct controller *controller, int64_t now_ns)
{
    begin_window(controller, now_ns);
    controller->rate_bps = limited(controller, LEAST_KEPT * controller->rate_bps);
    controller->increases = 0;
}

static const struct control_law TIMELY = {timely_ack, timely_timeout, wake};

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
    grow_window(controller, ack);
    if (ack->rtt_ns)
        learn_base(controller, ack);
    if (!controller->sampled_ns)
        controller->sampled_ns = ack->now_ns;
    if (ack->now_ns - controller->sampled_ns >= controller->options.sample_ns) {
        sample->interval_ns = ack->now_ns - controller->sampled_ns;
        controller->has_sample = true; /* paths.c tells of it and begins the next */
    }
}

static const struct control_law EXTERNAL = {external_ack, begin_window, wake};

/* ----------------------------------------------------------------------------------------------------------- all */

void controller_init(struct controller *controller, const struct mlt_rate_options *options)
{
    *controller = (struct controller){.window_bytes = MOST_INITIAL_BYTES};
    controller_set(controller, options);
    if (options->kind != MLT_CREDIT)
        controller->window_bytes = controller->initial_window_bytes;
    controller->rate_bps = limited(controller, options->kind == MLT_EXTERNAL ? options->rate_bps : controller->cap_bps);
}

/* While the flow is open: what was learned stays. */
void controller_set(struct controller *controller, const struct mlt_rate_options *options)
{
    static const struct control_law *laws[] = {
        [MLT_TIMELY] = &TIMELY, [MLT_EXTERNAL] = &EXTERNAL, [MLT_BBR] = &BBR, [MLT_CREDIT] = &CREDIT};
    controller->options = *options;
    controller->law = laws[options->kind <= MLT_CREDIT ? options->kind : MLT_TIMELY];
    controller->depth_bytes = 0; /* a law that wants one sets it */
    controller->cap_bps = options->cap_bps > 0 ? options->cap_bps : DEFAULT_CAP_BPS;
    controller->floor_bps = options->floor_bps > 0 ? options->floor_bps : FLOOR_SHARE * controller->cap_bps;
    controller->floor_bps = least(controller->floor_bps, controller->cap_bps);
    controller->most_window_bytes = options->window_bytes ? options->window_bytes : DEFAULT_WINDOW_BYTES;
    double initial_bytes = most(LEAST_INITIAL_BYTES,
                                least(MOST_INITIAL_BYTES, INITIAL_SECONDS * controller->cap_bps / BITS));
    controller->initial_window_bytes = least(controller->most_window_bytes,
                                             options->initial_window_bytes ? options->initial_window_bytes
                                                                           : initial_bytes);
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
