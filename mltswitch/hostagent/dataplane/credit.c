/* Credit: who sends to this host may have as much on its way as the host's port can take, and no more.
 *
 * A receiver knows all who send to it, so it divides one window among them: what the port carries in a round trip, and a
 * short queue that hides the pauses of hosts (NDP, SIGCOMM 2017; Homa, 2018; the receiver's credit of Ultra Ethernet 1.0).
 * Packets of data say how many bytes their sender has sent since the flow began; acknowledgements and control datagrams
 * say how many it may have sent. So a lost packet or a lost grant takes no credit with it, a late or doubled one says
 * nothing new, and a window that shrinks is told like one that grows. Front layers get what they can use before others
 * get any; within a layer flows are equal; what one cannot use, or does not use for two round trips, goes to the others.
 * A table of the states is in docs/agent-internals.md.
 */
#include "internal.h"

static const double GAIN = 1.25;                /* of what a round trip carries: else the window never finds a faster port */
static const double LOSS_SHARE = 0.02;          /* of an interval's bytes: more is a queue without room */
static const double KEPT = 0.85;                /* of the window of a flow that loses more; after several such cuts */
static const double STAYED = 0.7;               /* so much of its losses is left: they are not ours */
static const int64_t RANDOM_NS = 2 * SECOND;    /* that is believed for so long */
static const double UNSEEN_SHARE = 0.05;        /* of a flow's bytes, where its packets meet no queue of */
static const int64_t QUEUE_NS = MILLISECOND / 4; /* this */
static const double ELSEWHERE = 1.5;            /* times the port's losses: more is lost on a flow's own way */
static const double PORT_SHARE = 0.03;          /* of all bytes, where the margin cannot be less */
static const double SHARE_WEIGHT = 0.25;        /* of an interval's losses in the port's */
static const double PACE = 1.25;                /* of the port's rate: grants leave no faster */
static const int64_t PACE_NS = 50 * MICROSECOND; /* between two of them at least */
static const double REGAINED = 1.2;             /* by an interval without */
static const double SLOWER = 1.0 / 3, FASTER = 1.05; /* measured, over what the file says: then it is not so */
static const double NARROWER = 0.95;            /* likewise, where marks show that a queue elsewhere is what limits */
static const double MARKED_SHARE = 0.02;         /* of what comes, which one late burst does not mark */
static const double MOST_MARKED = 0.1;          /* more, and the margin is too much, as with losses */
static const int64_t MARGIN_NS = MILLISECOND;   /* of queue at the port, and more while hosts that run late */
static const double BUSY = 0.95;                /* leave it below this share of its rate, */
static const int64_t MOST_MARGIN_NS = 8 * MILLISECOND; /* up to this */
static const int64_t LEAST_MARGIN_NS = MILLISECOND / 8;
static const int64_t MARGIN_STEP_NS = MILLISECOND / 8;
static const int64_t INTERVAL_NS = 10 * MILLISECOND;
static const int64_t REMEMBERED_NS = SECOND;    /* a rate, and how many flows were open at once; twice that at most */
static const int64_t BASE_NS = 5 * SECOND;      /* a least round trip; then the window falls for two of them */
static const int64_t PAUSE_NS = SECOND / 2;     /* no queue makes a loop so long */
static const int64_t SLACK_NS = MILLISECOND;
static const int64_t FIRST_ASK_NS = 10 * MILLISECOND;
enum {
    BITS = 8,
    START_BYTES = 64 << 10, /* where nobody says how fast the port is */
    MOST_PORT_BYTES = 1 << 30, /* more is no grant of ours */
    DEFAULT_BYTES = 2 << 20,
    PARTS = 4, /* of a window: a grant of one is worth a datagram */
    MOST_DOUBLINGS = 6,
    MOST_CUTS = 4,
    LOOK_BYTES = 600000, /* of a flow: fewer tell nothing of its losses */
};

static uint32_t packet_bytes(const struct transfer *transfer)
{
    return transfer->flow->overhead_bytes + transfer->layout.full_bytes;
}

static uint64_t missing_bytes(const struct transfer *transfer)
{
    return (uint64_t)(transfer->layout.packets - transfer->result.arrived_packets) * packet_bytes(transfer);
}

/* -------------------------------------------------------------------------------------------------------- sending */

static int64_t patience_ns(const struct flow *flow)
{
    int64_t rtt_ns = flow_rtt(flow);
    return (rtt_ns ? 2 * rtt_ns + SLACK_NS : FIRST_ASK_NS) << flow->credit.asked;
}

bool credit_cut(struct flow *flow, struct at_hand *hand)
{
    struct credit *credit = &flow->credit;
    const struct layout *layout = &hand->transfer->layout;
    uint32_t count = 0;
    int64_t left = (int32_t)(credit->limit - credit->sent);
    for (; count < hand->count; count++) {
        left -= flow->overhead_bytes + layout_bytes(layout, hand->packets[count]);
        if (left < 0)
            break;
    }
    hand->count = count;
    if (!count && flow->timers[TIMER_CREDIT].place < 0)
        timer_set(flow->core, &flow->timers[TIMER_CREDIT], flow->core->now_ns + patience_ns(flow));
    return count > 0;
}

uint32_t credit_spend(struct flow *flow, uint32_t bytes)
{
    return flow->credit.sent += bytes;
}

/* Nothing was granted for so long that a datagram must have been lost. */
void credit_ask(struct flow *flow)
{
    struct credit *credit = &flow->credit;
    if (!flow_has_data(flow))
        return;
    if (batch_has_room(flow->core, 1, 0))
        path_probe(flow, path_for_control(flow, credit->asked), NULL, 0, flow->options.control_tos);
    credit->asked += credit->asked < MOST_DOUBLINGS;
    timer_set(flow->core, &flow->timers[TIMER_CREDIT], flow->core->now_ns + patience_ns(flow));
}

void credit_granted(struct flow *flow, uint64_t stamp, uint32_t limit)
{
    struct credit *credit = &flow->credit;
    if (stamp <= credit->limit_stamp)
        return;
    credit->limit_stamp = stamp;
    int64_t left = (int32_t)(limit - credit->sent), most_bytes = (int64_t)flow->controller.most_window_bytes;
    flow->statistics.overgranted += left > MOST_PORT_BYTES;
    limit = credit->sent + (uint32_t)(left < most_bytes ? left : most_bytes);
    bool is_more = (int32_t)(limit - credit->limit) > 0;
    credit->limit = limit;
    if (!is_more)
        return;
    credit->asked = 0;
    timer_cancel(flow->core, &flow->timers[TIMER_CREDIT]);
    flow_activate(flow);
}

/* ------------------------------------------------------------------------------------------- the receiver's port */

void port_init(struct port *port)
{
    *port = (struct port){.margin_ns = MARGIN_NS, .grown_bytes = START_BYTES, .losing.kept = 1, .allowed = 1};
    link_init(&port->flows, NULL);
    timer_init(&port->timer, TIMER_PORT, NULL);
}

void port_told(struct port *port, const struct mlt_flow_options *options)
{
    port->told_bps = most(port->told_bps, options->port_bps);
    port->most_bytes = most(port->most_bytes, options->receive_window_bytes ? options->receive_window_bytes : DEFAULT_BYTES);
}

/* What the file says of it, unless arrivals say something else. */
static double port_bps(const struct port *port)
{
    double measured_bps = most(port->newer.bps, port->older.bps);
    double slower = port->is_marked ? NARROWER : SLOWER;
    bool is_wrong = measured_bps > 0
        && (measured_bps < slower * port->told_bps || measured_bps > FASTER * port->told_bps);
    return is_wrong ? measured_bps : port->told_bps;
}

/* What may be granted of it: others on this host have the rest. */
static double allowed_bps(const struct port *port)
{
    return port->allowed * port_bps(port);
}

struct mlt_port port_state(const struct port *port)
{
    return (struct mlt_port){port_bps(port), port->all_bytes, port->open_flows};
}

/* Once, of a file that is far off; slower than it says may also be who sends, and has to last. With such a window no round
 * trip was short. */
static void tell_rate(struct mlt *core)
{
    struct port *port = &core->port;
    double bps = port_bps(port);
    bool is_slower = bps <= SLOWER * port->told_bps && port->newer.bps > 0 && port->older.bps > 0;
    if (port->is_corrected || !(port->told_bps > 0) || !(is_slower || bps >= port->told_bps / SLOWER))
        return;
    port->is_corrected = true;
    port->base_since_ns = core->now_ns - BASE_NS - 1;
    core_event(core, &(struct mlt_event){.kind = MLT_EVENT_PORT, .path = -1, .value = (int64_t)bps});
}

static double port_bytes(const struct port *port)
{
    double ns = port->losing.kept * GAIN * (double)port->base_ns + (double)port->margin_ns;
    double bytes = least(port->most_bytes, allowed_bps(port) / BITS / (double)SECOND * ns);
    return port_bps(port) > 0 ? bytes : port->most_bytes;
}

/* With which flows begin together, at once and unpaced: a queue of the margin. One alone makes none. */
static double opening_bytes(const struct port *port, uint32_t flows)
{
    double bps = allowed_bps(port);
    if (!(bps > 0) || (flows < 2 && !port->base_ns))
        return START_BYTES;
    double queue_bytes = bps / BITS / (double)SECOND * (double)port->margin_ns;
    return flows > 1 ? least(port_bytes(port), queue_bytes * flows / (flows - 1)) : port_bytes(port);
}

/* Flows that are, or were of late, open at once. */
static uint32_t port_flows(const struct port *port)
{
    return port->newer.flows > port->older.flows ? port->newer.flows : port->older.flows;
}

static int64_t last_loop_ns(const struct port *port)
{
    return port->latest_ns > port->base_ns ? port->latest_ns : port->base_ns;
}

/* Whether packets have waited, on average: the least of several would be one that met none by chance. */
static bool has_queue(const struct port *port)
{
    return port->loop_count && port->loops_ns / port->loop_count > port->base_ns + QUEUE_NS;
}

static void learn_base(struct port *port, int64_t loop_ns, int64_t now_ns)
{
    if (loop_ns <= 0 || (port->base_ns && loop_ns > 2 * port->base_ns + PAUSE_NS))
        return; /* who sends has made a pause */
    port->latest_ns = loop_ns;
    port->loops_ns += loop_ns;
    port->loop_count++;
    if (port->probing_until_ns && (!port->probed_ns || loop_ns < port->probed_ns))
        port->probed_ns = loop_ns;
    if (port->base_ns && loop_ns > port->base_ns)
        return;
    port->base_ns = loop_ns;
    port->base_since_ns = now_ns;
}

/* The queue of our own window hides a longer way: now and then it has to go. */
static void probe_base(struct port *port, int64_t now_ns)
{
    if (port->probing_until_ns && now_ns >= port->probing_until_ns) {
        port->probing_until_ns = 0;
        port->base_since_ns = now_ns;
        if (port->probed_ns)
            port->base_ns = port->probed_ns;
    } else if (!port->probing_until_ns && port->base_ns && now_ns - port->base_since_ns > BASE_NS) {
        port->probing_until_ns = now_ns + 2 * last_loop_ns(port);
        port->probed_ns = 0;
    }
}

/* Losses that stay while less is sent are of a bad link, and no reason to slow down further. */
static void judge(struct losing *losing, double most_share, int64_t now_ns)
{
    if (losing->expected_bytes < LOOK_BYTES)
        return;
    double share = 1 - least(1, (double)losing->arrived_bytes / (double)losing->expected_bytes);
    losing->expected_bytes = losing->arrived_bytes = 0;
    if (share <= most_share || now_ns < losing->random_until_ns) {
        losing->kept = least(1, REGAINED * losing->kept);
        losing->cuts = 0;
    } else if (losing->cuts == MOST_CUTS && share > STAYED * losing->first_share) {
        losing->kept = 1;
        losing->random_until_ns = now_ns + RANDOM_NS;
    } else {
        if (!losing->cuts)
            losing->first_share = share;
        losing->cuts += losing->cuts < MOST_CUTS;
        losing->kept *= KEPT;
    }
}

/* How fast packets come while the window, or a queue, is what limits them, and what of it is lost. */
static void look(struct mlt *core)
{
    struct port *port = &core->port;
    int64_t took_ns = port->last_ns - port->since_ns;
    if (took_ns < INTERVAL_NS || took_ns < 2 * port->base_ns)
        return;
    double share = port->expected_bytes ? 1 - least(1, (double)port->arrived_bytes / (double)port->expected_bytes) : 0;
    double marked = port->arrived_bytes ? (double)port->marked_bytes / (double)port->arrived_bytes : 0;
    bool is_queueing = has_queue(port);
    if (marked > MARKED_SHARE)
        port->marked_ns = core->now_ns;
    port->is_marked = port->marked_ns && core->now_ns - port->marked_ns < 2 * REMEMBERED_NS;
    double most_share = is_queueing ? LOSS_SHARE : UNSEEN_SHARE;
    port->share += SHARE_WEIGHT * (share - port->share);
    if (core->now_ns - port->newer.since_ns > REMEMBERED_NS) {
        port->older = port->newer;
        port->newer = (struct port_memory){.since_ns = core->now_ns, .flows = port->open_flows};
        if (port->allowed < 1) /* where a share is what limits, nothing is measured, and nothing is forgotten */
            port->newer.bps = port->older.bps;
    }
    double bps = (double)port->arrived_bytes * BITS * (double)SECOND / (double)took_ns;
    if (!port->had_room || is_queueing) {
        if (port->allowed >= 1) /* else it is the share that limits */
            port->newer.bps = most(port->newer.bps, bps);
        if (share > most_share || marked > MOST_MARKED)
            port->margin_ns = port->margin_ns / 2 < LEAST_MARGIN_NS ? LEAST_MARGIN_NS : port->margin_ns / 2;
        else if (port->margin_ns < MARGIN_NS || (bps < BUSY * allowed_bps(port) && port->margin_ns < MOST_MARGIN_NS))
            port->margin_ns += MARGIN_STEP_NS;
    }
    if (port->margin_ns == LEAST_MARGIN_NS || port->losing.kept < 1)
        judge(&port->losing, most(most_share, PORT_SHARE), core->now_ns);
    tell_rate(core);
    for (struct link *at = port->flows.next; at != &port->flows; at = at->next) { /* who loses more than the port does? */
        struct credit *credit = &((struct flow *)at->owner)->credit;
        judge(&credit->losing, most_share + ELSEWHERE * port->share, core->now_ns);
    }
    port->since_ns = port->last_ns;
    port->arrived_bytes = port->expected_bytes = port->marked_bytes = 0;
    port->loops_ns = port->loop_count = 0;
    port->had_room = false;
}

/* Its tensors' foremost layer. */
static uint32_t rank_of(const struct flow *flow)
{
    const struct transfer *first = flow->credit.receives.next->owner;
    return first->layer;
}

/* In whole packets: a part of one would be of no use, and a port would seem slower than it is. */
static void give(struct flow *flow, double bytes)
{
    uint32_t packet = flow->options.receive_datagram_bytes;
    flow->credit.window_bytes = packet * most(1, (double)(((uint64_t)bytes + packet - 1) / packet));
}

/* Who has had credit for so long, and has not sent, leaves its part to others. */
static double wanted_bytes(const struct flow *flow)
{
    const struct credit *credit = &flow->credit;
    int64_t silent_ns = flow->core->now_ns - credit->heard_ns;
    bool is_silent = (int32_t)(credit->granted - credit->heard) >= (int32_t)flow->options.receive_datagram_bytes
        && silent_ns > 2 * last_loop_ns(&flow->core->port) + 2 * MARGIN_NS;
    return is_silent ? 0 : (double)credit->missing_bytes;
}

/* What each flow of a rank gets at most, where nobody gets more than it has a use for, and the others the same. */
static double level_of(const struct port *port, uint32_t rank, double bytes)
{
    for (double level = 0, next;; level = next) {
        double below = 0, above = 0;
        for (struct link *at = port->flows.next; at != &port->flows; at = at->next) {
            double wanted = wanted_bytes(at->owner);
            if (rank_of(at->owner) == rank && wanted > level)
                above++;
            else if (rank_of(at->owner) == rank)
                below += wanted;
        }
        next = above > 0 ? (bytes - below) / above : level;
        if (next <= level)
            return level;
    }
}

/* Front layers first. Returns what nobody has a use for. */
static double divide(struct port *port, double left)
{
    for (uint32_t rank = 0, next; rank != UINT32_MAX; rank = next) {
        double level = level_of(port, rank, left);
        next = UINT32_MAX;
        for (struct link *at = port->flows.next; at != &port->flows; at = at->next) {
            struct flow *flow = at->owner;
            if (rank_of(flow) > rank && rank_of(flow) < next)
                next = rank_of(flow);
            if (rank_of(flow) != rank)
                continue;
            double part = least(level, wanted_bytes(flow));
            give(flow, flow->credit.losing.kept * part);
            left -= part;
        }
    }
    return left;
}

/* What would come at once after a pause of this host would be a queue: of the rest of its window a flow hears later. */
static void grant(struct flow *flow)
{
    struct credit *credit = &flow->credit;
    struct port *port = &flow->core->port;
    uint32_t wanted = credit->heard + (uint32_t)credit->window_bytes;
    int64_t rise = (int32_t)(wanted - credit->granted);
    if (rise > 0 && (double)rise > port->pace_bytes) {
        uint32_t packet = flow->options.receive_datagram_bytes;
        rise = (int64_t)((uint64_t)port->pace_bytes / packet * packet);
        int64_t at_ns = flow->core->now_ns + PACE_NS + (int64_t)(packet * BITS * (double)SECOND / allowed_bps(port));
        timer_set(flow->core, &port->timer, at_ns);
    }
    credit->granted += (uint32_t)rise;
    port->pace_bytes -= rise > 0 ? (double)rise : 0;
}

static void refill(struct port *port, int64_t now_ns)
{
    /* Of a share no more than that leaves on average, for others' packets make the queue that would slow ours down; what a
     * pause of this host has kept back may follow at once. */
    bool is_shared = port->allowed < 1;
    double bps = allowed_bps(port), pace = is_shared ? 1 : PACE;
    double most_ns = (double)(is_shared ? MOST_MARGIN_NS : port->margin_ns + port->base_ns / 4);
    double most_bytes = bps / BITS / (double)SECOND * most_ns;
    port->pace_bytes += pace * bps / BITS / (double)SECOND * (double)(now_ns - port->paced_ns);
    port->pace_bytes = bps > 0 ? least(most(most_bytes, MLT_MOST_DATAGRAM_BYTES), port->pace_bytes) : port->most_bytes;
    port->paced_ns = now_ns;
}

static void tell(struct flow *flow)
{
    struct credit *credit = &flow->credit;
    int64_t rise = (int32_t)(credit->granted - credit->told);
    if (rise < (int64_t)most(flow->options.receive_datagram_bytes, credit->window_bytes / PARTS))
        return;
    if (flow->pending_paths)
        flow->reply_paths |= flow->pending_paths;
    else
        flow->control.reply_now = true;
    flow_reply(flow);
}

void port_divide(struct mlt *core)
{
    struct port *port = &core->port;
    if (!port->is_dirty || !link_is_in(&port->flows))
        return;
    port->is_dirty = false;
    look(core);
    probe_base(port, core->now_ns);
    refill(port, core->now_ns);
    uint32_t begun = 0;
    for (struct link *at = port->flows.next; at != &port->flows; at = at->next)
        begun++;
    double left = port->probing_until_ns ? 0 : least(port_bytes(port), port->grown_bytes); /* 0: a packet each */
    if (core->now_ns - port->began_ns < last_loop_ns(port)) /* who has not begun yet may be about to, with what it has */
        left *= begun / most(1, port->open_flows);
    port->had_room |= divide(port, left) > 1;
    for (struct link *at = port->flows.next; at != &port->flows; at = at->next) {
        grant(at->owner);
        tell(at->owner);
    }
    struct link *first = port->flows.next; /* another one is the first to get what there is */
    link_remove(first);
    link_append(&port->flows, first);
}

/* ------------------------------------------------------------------------------------------------------ receiving */

void credit_posted(struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    struct port *port = &flow->core->port;
    transfer->is_counted = true;
    port->open_flows += flow->credit.open++ == 0;
    if (port->open_flows > port->newer.flows)
        port->newer.flows = port->open_flows;
}

/* Its first packet, or question, has come. */
void credit_begun(struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    struct credit *credit = &flow->credit;
    struct port *port = &flow->core->port;
    struct link *before = credit->receives.previous;
    while (before != &credit->receives && ((struct transfer *)before->owner)->layer > transfer->layer)
        before = before->previous;
    link_append(before->next, &transfer->receiving);
    credit->missing_bytes += missing_bytes(transfer);
    if (flow_rtt(flow) && !port->base_ns)
        learn_base(port, flow_rtt(flow), flow->core->now_ns);
    credit->heard_ns = flow->core->now_ns;
    if (!link_is_in(&flow->receiving))
        credit->sampled_ns = 0; /* of a limit before the pause */
    if (!link_is_in(&port->flows)) {
        port->began_ns = flow->core->now_ns;
        port->grown_bytes = opening_bytes(port, port_flows(port));
        port->is_grown = false;
    }
    link_append(&port->flows, &flow->receiving);
    port->is_dirty = true;
}

void credit_arrived(const struct transfer *transfer)
{
    transfer->flow->credit.missing_bytes -= packet_bytes(transfer);
}

void credit_ended(struct transfer *transfer)
{
    struct flow *flow = transfer->flow;
    struct port *port = &flow->core->port;
    transfer->is_counted = false;
    port->open_flows -= --flow->credit.open == 0;
    if (!link_is_in(&transfer->receiving))
        return;
    link_remove(&transfer->receiving);
    flow->credit.missing_bytes -= missing_bytes(transfer);
    if (!link_is_in(&flow->credit.receives))
        link_remove(&flow->receiving);
    port->is_dirty = true;
}

/* Doubles in a round trip, where nobody knows the port's rate until a queue or losses show it. */
static void grow(struct port *port, uint32_t bytes)
{
    bool is_lossy = port->expected_bytes > START_BYTES && (double)port->arrived_bytes < STAYED * (double)port->expected_bytes;
    if (port->is_grown)
        return;
    port->grown_bytes += bytes;
    if (port_bps(port) > 0 || !(is_lossy || port->latest_ns > 2 * port->base_ns + QUEUE_NS))
        return;
    port->grown_bytes = most(START_BYTES, port->grown_bytes / 2);
    port->is_grown = true;
}

bool credit_heard(struct flow *flow, uint32_t sent, uint32_t bytes, bool is_new, bool is_marked, int64_t arrived_ns)
{
    struct credit *credit = &flow->credit;
    struct port *port = &flow->core->port;
    int64_t now_ns = flow->core->now_ns;
    if ((int32_t)(sent - credit->most_told) > 0) {
        flow->statistics.ungranted++;
        if (is_new && sent - credit->most_told <= port->most_bytes) { /* grants begin anew behind it: else it would wait
                                                                         for ever; nobody believes that he has more */
            credit->heard = credit->granted = sent;
            port->is_dirty = true;
        }
        return false;
    }
    if (credit->sampled_ns && (int32_t)(sent - credit->sampled_above) > 0) {
        learn_base(port, arrived_ns - credit->sampled_ns, now_ns);
        credit->sampled_ns = 0;
    }
    int32_t more = (int32_t)(sent - credit->heard);
    if (more > 0) {
        credit->heard = sent;
        credit->heard_ns = now_ns;
        credit->losing.expected_bytes += (uint32_t)more;
        port->losing.expected_bytes += (uint32_t)more;
        port->expected_bytes += (uint32_t)more;
    }
    if (arrived_ns - port->last_ns > 2 * INTERVAL_NS + 2 * port->base_ns) { /* a pause: it begins anew */
        port->since_ns = arrived_ns;
        port->arrived_bytes = port->expected_bytes = port->marked_bytes = 0;
    } else {
        port->arrived_bytes += bytes;
        port->marked_bytes += is_marked ? bytes : 0;
    }
    port->all_bytes += bytes;
    credit->losing.arrived_bytes += bytes;
    port->losing.arrived_bytes += bytes;
    if (arrived_ns > port->last_ns)
        port->last_ns = arrived_ns;
    grow(port, bytes);
    port->is_dirty = true;
    return true;
}

/* What a datagram to the peer says: how many bytes it may have sent. */
uint32_t credit_told(struct flow *flow)
{
    struct credit *credit = &flow->credit;
    const struct port *port = &flow->core->port;
    double window_bytes = 0;
    if (!link_is_in(&credit->receives)) {
        uint32_t flows = port_flows(port);
        window_bytes = opening_bytes(port, flows) / most(1, flows);
        window_bytes = credit->open ? most(flow->options.receive_datagram_bytes, window_bytes) : 0;
    }
    uint32_t limit = link_is_in(&credit->receives) ? credit->granted : credit->heard + (uint32_t)window_bytes;
    credit->granted = limit;
    if ((int32_t)(limit - credit->most_told) > 0) {
        if (!credit->sampled_ns && link_is_in(&credit->receives)) {
            credit->sampled_ns = flow->core->now_ns;
            credit->sampled_above = credit->most_told;
        }
        credit->most_told = limit;
    }
    return credit->told = limit;
}
