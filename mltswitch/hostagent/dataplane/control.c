/* The control stream: small messages between the two ends of a flow, reliable and in order.
 *
 * Messages travel in numbered frames, one a datagram. Each datagram acknowledges: the number that is expected next, and
 * which frames behind it are there already. A frame that is not acknowledged in time goes out again, by another path.
 * What is to be said is not kept here: frames are filled from the state of transfers when there is room for one.
 */
#include <stdlib.h>

#include "internal.h"

enum {
    REPLY_NS = 250 * MICROSECOND, /* an acknowledgement waits so long for a frame to go with */
    SLACK_NS = MILLISECOND,       /* that hosts take, beside the round trip */
    FIRST_TIMEOUT_NS = 5 * MILLISECOND,
    MOST_DOUBLINGS = 4,
    RESENT_AT_ONCE = 4,
    RTT_WEIGHT = 8,
};

bool control_open(struct flow *flow)
{
    struct control *control = &flow->control;
    control->memory = malloc((size_t)CONTROL_FRAMES * (flow->frame_bytes + FRAME_BYTES));
    if (!control->memory)
        return false;
    for (uint32_t number = 0; number < CONTROL_FRAMES; number++) {
        control->out[number].bytes = control->memory + (size_t)number * flow->frame_bytes;
        control->in[number].bytes =
            control->memory + (size_t)CONTROL_FRAMES * flow->frame_bytes + (size_t)number * FRAME_BYTES;
    }
    control->next = control->unacknowledged = control->expected = 1;
    link_init(&control->talk, NULL);
    link_init(&control->waiting, NULL);
    control->user.last = &control->user.first;
    return true;
}

static uint32_t frames_ahead(const struct control *control)
{
    uint32_t mask = 0;
    for (uint32_t ahead = 0; ahead + 1 < CONTROL_FRAMES; ahead++)
        mask |= (uint32_t)control->in[(control->expected + 1 + ahead) % CONTROL_FRAMES].is_there << ahead;
    return mask;
}

static void emit(struct flow *flow, uint32_t number)
{
    struct control *control = &flow->control;
    struct frame *frame = number ? &control->out[number % CONTROL_FRAMES] : NULL;
    /* Each try of a frame takes another path. What only acknowledges takes the one that the peer's frame came by. */
    int path = path_for_control(flow, frame ? control->path + frame->tries : control->heard_path);
    uint8_t *header = batch_small(flow, KIND_CONTROL, path, flow->options.control_tos);
    if (frame) {
        frame->sent_ns = flow->core->now_ns;
        frame->tries++;
        flow->statistics.control_frames++;
        flow->statistics.control_resent += frame->tries > 1;
    }
    if (!header)
        return; /* as if it were lost */
    write32(header + FRAME_OFFSET, number);
    write32(header + EXPECTED_OFFSET, control->expected);
    if (flow->options.has_credit)
        write32(header + GRANTED_OFFSET, credit_told(flow));
    write16(header + HELD_FRAMES_OFFSET, (uint16_t)frames_ahead(control));
    if (frame)
        memcpy(header + HEADER_BYTES, frame->bytes, frame->length);
    batch_small_done(flow, header, frame ? frame->length : 0);
    control->reply_now = control->reply_later = false;
}

static int64_t timeout_ns(const struct control *control, const struct frame *frame)
{
    int64_t first_ns = control->rtt_ns ? 2 * control->rtt_ns + SLACK_NS : FIRST_TIMEOUT_NS;
    int doublings = frame->tries > MOST_DOUBLINGS ? MOST_DOUBLINGS : frame->tries - 1;
    return first_ns << (doublings > 0 ? doublings : 0);
}

static void set_timer(struct flow *flow)
{
    struct control *control = &flow->control;
    int64_t at_ns = NEVER;
    for (uint32_t number = control->unacknowledged; number != control->next; number++) {
        const struct frame *frame = &control->out[number % CONTROL_FRAMES];
        int64_t due_ns = frame->sent_ns + timeout_ns(control, frame);
        if (frame->is_there && due_ns < at_ns)
            at_ns = due_ns;
    }
    timer_set(flow->core, &flow->timers[TIMER_CONTROL], at_ns);
}

void control_build(struct flow *flow)
{
    struct control *control = &flow->control;
    bool has_new = false;
    while (control->next - control->unacknowledged < CONTROL_FRAMES) {
        struct frame *frame = &control->out[control->next % CONTROL_FRAMES];
        uint32_t length = messages_fill(flow, frame->bytes, flow->frame_bytes);
        if (!length)
            break;
        frame->length = (uint16_t)length;
        frame->is_there = true;
        frame->tries = 0;
        emit(flow, control->next++);
        has_new = true;
    }
    if (control->reply_now)
        emit(flow, 0);
    if (has_new)
        set_timer(flow);
}

void control_timeout(struct flow *flow)
{
    struct control *control = &flow->control;
    int64_t now_ns = flow->core->now_ns;
    int resent = 0;
    if (!batch_has_room(flow->core, RESENT_AT_ONCE, 0)) {
        timer_set(flow->core, &flow->timers[TIMER_CONTROL], now_ns + SLACK_NS);
        return;
    }
    for (uint32_t number = control->unacknowledged; number != control->next && resent < RESENT_AT_ONCE; number++) {
        struct frame *frame = &control->out[number % CONTROL_FRAMES];
        if (!frame->is_there || now_ns - frame->sent_ns < timeout_ns(control, frame))
            continue;
        emit(flow, number);
        resent++;
    }
    set_timer(flow);
}

static void reply_now(struct flow *flow)
{
    flow->control.reply_now = true;
    flow_reply(flow);
}

static void reply_later(struct flow *flow)
{
    struct timer *timer = &flow->timers[TIMER_REPLY];
    if (flow->control.reply_later) {
        reply_now(flow);
        return;
    }
    flow->control.reply_later = true;
    if (timer->at_ns > flow->core->now_ns + REPLY_NS)
        timer_set(flow->core, timer, flow->core->now_ns + REPLY_NS);
}

static void acknowledge(struct flow *flow, uint32_t number)
{
    struct control *control = &flow->control;
    int64_t now_ns = flow->core->now_ns;
    struct frame *frame = &control->out[number % CONTROL_FRAMES];
    if (!frame->is_there)
        return;
    frame->is_there = false;
    if (frame->tries != 1) { /* the round trip of which of them would be the question */
        control->path = (uint8_t)(path_for_control(flow, control->path + frame->tries - 1));
        return;
    }
    int64_t rtt_ns = now_ns - frame->sent_ns;
    control->rtt_ns = control->rtt_ns ? control->rtt_ns + (rtt_ns - control->rtt_ns) / RTT_WEIGHT : rtt_ns + 1;
}

/* What the peer has of ours. Returns whether that can be. */
static bool take_acknowledgement(struct flow *flow, uint32_t expected, uint32_t mask)
{
    struct control *control = &flow->control;
    int64_t now_ns = flow->core->now_ns;
    uint32_t out = control->next - control->unacknowledged;
    if (expected - control->unacknowledged > out)
        return control->unacknowledged - expected <= INT32_MAX; /* an old one says nothing new */
    bool is_new = expected != control->unacknowledged;
    for (; control->unacknowledged != expected; control->unacknowledged++)
        acknowledge(flow, control->unacknowledged);
    for (uint32_t ahead = 0; mask >> ahead; ahead++)
        if (mask >> ahead & 1 && expected + 1 + ahead - control->unacknowledged < control->next - control->unacknowledged)
            acknowledge(flow, expected + 1 + ahead);
    struct frame *first = &control->out[control->unacknowledged % CONTROL_FRAMES];
    if (mask && control->unacknowledged != control->next && first->is_there
        && now_ns - first->sent_ns > control->rtt_ns && batch_has_room(flow->core, 1, 0))
        emit(flow, control->unacknowledged);
    set_timer(flow);
    if (is_new)
        flow_reply(flow); /* there may be more to say */
    return true;
}

static bool take_frames(struct flow *flow, const uint8_t *bytes, uint32_t length)
{
    struct control *control = &flow->control;
    control->expected++;
    if (!messages_take(flow, bytes, length))
        return false;
    for (;;) {
        struct frame *frame = &control->in[control->expected % CONTROL_FRAMES];
        if (!frame->is_there)
            return true;
        frame->is_there = false;
        control->expected++;
        if (!messages_take(flow, frame->bytes, frame->length))
            return false;
    }
}

void control_received(struct flow *flow, const uint8_t *datagram, uint32_t body_bytes, int path)
{
    struct control *control = &flow->control;
    uint32_t number = read32(datagram + FRAME_OFFSET);
    bool is_sane = body_bytes <= FRAME_BYTES && path < flow->path_count
        && take_acknowledgement(flow, read32(datagram + EXPECTED_OFFSET), read16(datagram + HELD_FRAMES_OFFSET));
    uint32_t ahead = number - control->expected;
    if (!is_sane) {
        flow->statistics.refused++;
        return;
    }
    control->heard_path = (uint8_t)path;
    if (!number)
        return;
    if (ahead >= CONTROL_FRAMES) {
        if (control->expected - number <= INT32_MAX)
            reply_now(flow); /* it has been here: our acknowledgement was lost */
        return;
    }
    if (ahead) {
        struct frame *frame = &control->in[number % CONTROL_FRAMES];
        memcpy(frame->bytes, datagram + HEADER_BYTES, body_bytes);
        frame->length = (uint16_t)body_bytes;
        frame->is_there = true;
        reply_now(flow);
        return;
    }
    if (!take_frames(flow, datagram + HEADER_BYTES, body_bytes)) {
        core_event(flow->core, &(struct mlt_event){.kind = MLT_EVENT_PROTOCOL, .flow = flow->token, .path = -1});
        flow_fail(flow, MLT_PROTOCOL, "the peer broke the protocol");
    }
    reply_later(flow);
}
