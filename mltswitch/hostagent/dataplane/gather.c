/* Early Close (LTP, section III-B): when receives that belong together have waited as long as it pays.
 *
 * One flow's tensors in a gather are a link, and its clock starts with its first packet. Until the link's LT everything
 * is waited for; from then on a percentage of the link's bytes is enough; behind the deadline, which is the longest LT
 * of the gather and the slack, each tensor's own bound is. No receive ever ends with less than its own bounds allow:
 * the paper closes then with whatever is there, and doubts it (section VI-B).
 */
#include <stdlib.h>

#include "internal.h"

static const double REGISTERED_ROUND_TRIPS = 1.5; /* LTP, section III-B */
static const int64_t MOST_MEDIANS = 4; /* what one link's LT counts at most, over the median: who lies delays himself */
static const int64_t LONGEST_NS = INT64_MAX / 8;
enum { BITS = 8 };

static struct gather *gather_of(struct mlt *core, const struct mlt_gather *wanted)
{
    for (struct link *at = core->gathers.next; wanted->number && at != &core->gathers; at = at->next)
        if (((struct gather *)at->owner)->number == wanted->number)
            return at->owner;
    struct gather *gather = calloc(1, sizeof *gather);
    if (!gather)
        return NULL;
    link_init(&gather->link, gather);
    link_init(&gather->links, NULL);
    gather->number = wanted->number;
    gather->percentage = wanted->percentage;
    gather->slack_ns = wanted->slack_ns;
    link_append(&core->gathers, &gather->link);
    return gather;
}

static struct gather_link *link_of(struct gather *gather, struct flow *flow)
{
    for (struct link *at = gather->links.next; at != &gather->links; at = at->next)
        if (((struct gather_link *)at->owner)->flow == flow)
            return at->owner;
    struct gather_link *link = gather->link_count < MOST_LINKS ? calloc(1, sizeof *link) : NULL;
    if (!link)
        return NULL;
    link_init(&link->link, link);
    link_init(&link->members, NULL);
    timer_init(&link->timer, TIMER_LINK, link);
    link->gather = gather;
    link->flow = flow;
    link_append(&gather->links, &link->link);
    gather->link_count++;
    return link;
}

static void release(struct mlt *core, struct gather *gather)
{
    if (--gather->open)
        return;
    while (link_is_in(&gather->links)) {
        struct gather_link *link = gather->links.next->owner;
        timer_cancel(core, &link->timer);
        link_remove(&link->link);
        free(link);
    }
    link_remove(&gather->link);
    free(gather);
}

static uint64_t bytes_of(const struct transfer *transfer)
{
    return transfer->layout.elements * transfer->layout.element_bytes;
}

/* From the link's first packet; 0: not known. */
static int64_t lt_of(const struct gather_link *link)
{
    const struct mlt_flow_statistics *told = &link->flow->statistics;
    if (link->lt_ns != MLT_LT_REGISTERED)
        return link->lt_ns;
    if (!told->peer_base_rtt_ns)
        return 0;
    double ns = REGISTERED_ROUND_TRIPS * (double)told->peer_base_rtt_ns
        + (double)link->posted_bytes * BITS * (double)SECOND / told->peer_bandwidth_bps;
    return ns < (double)LONGEST_NS ? (int64_t)ns + 1 : LONGEST_NS;
}

static int by_length(const void *one, const void *other)
{
    int64_t first = *(const int64_t *)one, second = *(const int64_t *)other;
    return (first > second) - (first < second);
}

/* From a link's first packet; NEVER: no LT is known. A link whose LT is not known delays the others no longer than one
 * that claims to need much. */
static int64_t deadline_of(const struct gather *gather)
{
    int64_t lts[MOST_LINKS];
    uint32_t count = 0;
    for (struct link *at = gather->links.next; at != &gather->links; at = at->next) {
        lts[count] = lt_of(at->owner);
        count += lts[count] > 0;
    }
    if (!count)
        return NEVER;
    qsort(lts, count, sizeof *lts, by_length);
    int64_t longest = lts[count - 1], middle = lts[(count - 1) / 2];
    if (longest / MOST_MEDIANS > middle || count < gather->link_count)
        longest = MOST_MEDIANS * middle;
    return gather->slack_ns < NEVER - longest ? longest + gather->slack_ns : NEVER;
}

static void set_timer(struct gather_link *link)
{
    int64_t lt_ns = lt_of(link), deadline_ns = deadline_of(link->gather);
    int64_t after_ns = link->is_over || !link->began_ns || !lt_ns ? NEVER : link->is_due ? deadline_ns : lt_ns;
    timer_set(link->flow->core, &link->timer,
              after_ns < NEVER - link->began_ns ? link->began_ns + after_ns : NEVER);
}

static bool has_percentage(const struct gather_link *link)
{
    return (double)link->arrived_bytes >= link->gather->percentage * (double)link->posted_bytes;
}

static void look_at_clock(struct gather_link *link)
{
    int64_t since_ns = link->flow->core->now_ns - link->began_ns, lt_ns = lt_of(link);
    link->is_due = link->began_ns && lt_ns && since_ns >= lt_ns;
    link->is_over = link->is_due && since_ns >= deadline_of(link->gather);
    link->is_enough = link->is_due && has_percentage(link);
    set_timer(link);
}

/* Times have changed; what may end now does so by the timer. */
static void look_soon(struct gather_link *link)
{
    look_at_clock(link);
    if (link->is_over || link->is_enough)
        timer_set(link->flow->core, &link->timer, link->flow->core->now_ns);
}

static void look_at_all(const struct gather *gather)
{
    for (struct link *at = gather->links.next; at != &gather->links; at = at->next)
        look_soon(at->owner);
}

bool gather_join(struct transfer *transfer)
{
    struct mlt *core = transfer->flow->core;
    struct gather *gather = gather_of(core, &transfer->policy.gather);
    if (!gather)
        return false;
    gather->open++;
    struct gather_link *link = link_of(gather, transfer->flow);
    if (!link) {
        release(core, gather);
        return false;
    }
    link->lt_ns = transfer->policy.gather.lt_ns; /* as it is with all that is posted by now */
    link->posted_bytes += bytes_of(transfer);
    transfer->gathered_in = link;
    link_append(&link->members, &transfer->gathered);
    look_soon(link);
    return true;
}

static void end_if_allowed(struct transfer *transfer)
{
    const struct gather_link *link = transfer->gathered_in;
    if (completion_is_within_bounds(transfer))
        completion_end(transfer, link->is_over ? MLT_AT_DEADLINE : MLT_AT_PERCENTAGE);
}

/* Ends whatever may end now; the link is gone afterwards if that was all of the gather. */
static void close_link(struct gather_link *link)
{
    struct mlt *core = link->flow->core;
    struct gather *gather = link->gather;
    gather->open++;
    for (struct link *at = link->members.next, *next; at != &link->members; at = next) {
        next = at->next;
        end_if_allowed(at->owner);
    }
    release(core, gather);
}

void gather_begun(const struct transfer *transfer)
{
    struct gather_link *link = transfer->gathered_in;
    if (!link->began_ns)
        link->began_ns = transfer->flow->core->now_ns;
    set_timer(link);
}

void gather_arrived(struct transfer *transfer)
{
    struct gather_link *link = transfer->gathered_in;
    if (link->is_over || (link->is_due && link->is_enough)) {
        end_if_allowed(transfer);
    } else if (link->is_due && has_percentage(link)) {
        link->is_enough = true;
        close_link(link);
    }
}

void gather_timeout(struct gather_link *link)
{
    look_at_clock(link);
    if (link->is_over || link->is_enough)
        close_link(link);
}

/* The peer has told what it knows of the network: where that makes an LT, it makes the times, too. */
void gather_told(const struct flow *flow)
{
    struct link *gathers = &flow->core->gathers;
    for (struct link *at = gathers->next; at != gathers; at = at->next) {
        const struct gather *gather = at->owner;
        bool is_changed = false;
        for (struct link *each = gather->links.next; each != &gather->links; each = each->next) {
            const struct gather_link *link = each->owner;
            is_changed |= link->flow == flow && link->lt_ns == MLT_LT_REGISTERED;
        }
        if (is_changed)
            look_at_all(gather);
    }
}

/* A flow closes: its links, of which no receive is open any more, delay nobody. */
void gather_forget(const struct flow *flow)
{
    struct link *gathers = &flow->core->gathers;
    for (struct link *at = gathers->next; at != gathers; at = at->next) {
        struct gather *gather = at->owner;
        for (struct link *each = gather->links.next, *next; each != &gather->links; each = next) {
            struct gather_link *link = each->owner;
            next = each->next;
            if (link->flow != flow)
                continue;
            timer_cancel(flow->core, &link->timer);
            link_remove(&link->link);
            gather->link_count--;
            free(link);
        }
        look_at_all(gather);
    }
}

void gather_leave(struct transfer *transfer)
{
    struct gather_link *link = transfer->gathered_in;
    int64_t deadline_ns = deadline_of(link->gather);
    transfer->result.lt_ns = lt_of(link);
    transfer->result.deadline_ns = deadline_ns == NEVER ? 0 : deadline_ns;
    transfer->gathered_in = NULL;
    link_remove(&transfer->gathered);
    if (link->is_due && !link->is_enough && has_percentage(link))
        look_soon(link); /* for the others */
    release(transfer->flow->core, link->gather);
}
