/* What the files of the data plane share: its structures, and which file does what with them. No logic lives here.
 *
 * Everything but `shared` belongs to the core: whoever holds `turn` (socket.c), or the caller of virtual time's door.
 * Other threads put commands into `shared`, and find what is done there.
 */
#ifndef MLT_INTERNAL_H
#define MLT_INTERNAL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "dataplane.h"
#include "gmac.h"
#include "wire.h"

#define NEVER INT64_MAX

enum limit {
    TURN_BYTES = 4 * MLT_WINDOW_BYTES, /* sent before the sockets are read again */
    BATCH_PACKETS = 256,
    BATCH_BYTES = 2 * MLT_WINDOW_BYTES,
    BATCH_MESSAGES = 256,
    BATCH_PARTS = 2 * BATCH_PACKETS + BATCH_MESSAGES,
    WIRE_OVERHEAD_BYTES = 42, /* Ethernet, IPv4 and UDP, as pacing counts them */

    CONTROL_FRAMES = 16, /* on the way, and waiting for an earlier one */
    FRAME_BYTES = 1200,  /* of messages in one control datagram */
    MESSAGE_HEADER_BYTES = 4,

    CHECKPOINTS = 128,       /* of a path: what had been sent when */
    CHECKPOINT_PACKETS = 8,  /* between two */

    MOST_EARLY_ENDS = 4096, /* of a flow; older ones are forgotten */

    MOST_AT_ONCE = 20,      /* packets of a burst where repairs are made at once (LTP, section III-D) */
    AT_ONCE_BYTES = 30000,
    MOST_DEPARTURES = 4096, /* of a path, kept until their packets are named; of more the oldest count as lost */
    NAMINGS = 64,           /* pieces of bitmaps that a flow's acknowledgements still name */
    MOST_LINKS = 1024,      /* of a gather */

    WATCHES = 4, /* looks at a silent flow before it has failed */

    MILLION = 1000000, /* parts of it are how a message tells a share */
    MICROSECOND = 1000,
    MILLISECOND = 1000 * MICROSECOND,
};
#define SECOND ((int64_t)1000 * MILLISECOND)

static inline double least(double one, double other) { return one < other ? one : other; }
static inline double most(double one, double other) { return one > other ? one : other; }

/* A list through its members; `owner` is the member, and null in the list itself. */
struct link {
    struct link *previous, *next;
    void *owner;
};

enum timer_kind {
    TIMER_CONTROL, TIMER_REPLY, TIMER_PACE, TIMER_HEALTH, TIMER_WATCH, TIMER_TAIL, TIMER_CREDIT, /* a flow's */
    FLOW_TIMERS,
    TIMER_TRANSFER = FLOW_TIMERS, TIMER_LINK, TIMER_PORT
};

struct timer {
    int64_t at_ns;
    int32_t place; /* in the heap; -1: not set */
    int32_t kind;
    void *owner;
};

struct timers {
    struct timer **heap;
    int32_t count, room;
};

/* ------------------------------------------------------------------------------------------ rate and paths */

struct ack {
    int64_t now_ns, rtt_ns; /* rtt 0: none measured */
    bool is_limited;        /* by the network: there is more to send */
    int64_t echoed_ns;      /* when the newest packet that it speaks of was sent */
    uint64_t delivered_bytes, lost_bytes, in_flight_bytes;
    uint32_t delivered, lost, marked; /* packets */
    int path;
};

struct controller;

/* What a rate control has to answer; `rate_bps` and `window_bytes` of the controller are what it decides. */
struct control_law {
    void (*on_ack)(struct controller *, const struct ack *);
    void (*on_timeout)(struct controller *, int64_t now_ns);
    void (*on_wake)(struct controller *, int64_t now_ns); /* there is something to send, maybe after a pause */
};

extern const struct control_law BBR; /* bbr.c */

enum bbr_limits {
    DELIVERIES = 64,       /* acknowledgements that are remembered, a sixteenth of a round trip apart */
    BANDWIDTH_ROUNDS = 10, /* round trips of which the most delivered counts */
};

enum bbr_state { BBR_STARTUP, BBR_DRAIN, BBR_PROBE_BANDWIDTH, BBR_PROBE_RTT };

struct delivery {
    int64_t at_ns, echoed_ns; /* the latter: when the newest packet that it spoke of was sent */
    uint64_t bytes;           /* delivered until then */
    int path;
    bool is_ours;             /* the sender had nothing more to send */
};

struct bbr {
    enum bbr_state state, resumed; /* the latter: after PROBE_RTT */
    int64_t state_ns, round_ns;
    int64_t base_rtt_ns, newer_base_rtt_ns, older_base_rtt_ns; /* the least, since the window began, of the one before */
    int64_t window_ns, empty_ns; /* when the newer one began; when the queue was last empty, for all we know */
    bool conserves;    /* a loss is answered, of what was sent before this time: */
    int64_t lost_ns;
    double kept_bytes; /* on the way meanwhile */
    double bandwidth_bps, most_bps[BANDWIDTH_ROUNDS], full_bps; /* the last: when it last grew by a quarter */
    uint64_t delivered_bytes;
    struct delivery deliveries[DELIVERIES];
    uint32_t next, count, round, full_rounds, cycle;
    double more_quanta;
    uint32_t look_packets, look_lost;
    bool has_round;
};

struct controller {
    const struct control_law *law;
    double rate_bps, window_bytes;
    double depth_bytes; /* that may leave at once after a pause of ours; 0: as always */
    double cap_bps, floor_bps, most_window_bytes, initial_window_bytes;
    struct mlt_rate_options options;
    /* TIMELY */
    double gradient_ns;
    int64_t previous_rtt_ns, base_rtt_ns, newer_base_rtt_ns, older_base_rtt_ns, base_since_ns;
    int64_t step_ns, step_rtt_ns; /* since when, and the least round trip since */
    int32_t increases;
    int64_t slowed_ns;       /* last decrease: what left before says nothing of it */
    int64_t acknowledged_ns; /* last acknowledgement */
    struct bbr bbr;
    /* For an external controller */
    struct mlt_sample sample;
    int64_t sampled_ns;
    bool has_sample;
};

struct checkpoint {
    uint64_t stamp;
    uint64_t packets, bytes; /* sent up to this stamp, included */
};

/* A burst that has left, until its packets are named or found to be lost. */
struct departure {
    int64_t left_ns;
    struct transfer *transfer; /* null: it is over */
    uint32_t packets[MOST_AT_ONCE], packet_bytes; /* the latter: of each */
    uint8_t count, named, proofs; /* the last: named ones of which it is certain that this departure brought them */
    bool is_repair;
};

struct departures {
    struct departure *ring; /* number modulo `room`, which is a power of 2 */
    uint32_t room, next, count, proofs;
    int64_t news_ns; /* when one of its packets was last named, or all were given up */
};

struct path {
    int32_t socket;
    socklen_t name_bytes;
    uint8_t name[MLT_ADDRESS_BYTES];
    uint8_t frame[MLT_FRAME_BYTES], frame_bytes; /* 0: the kernel makes the frames */
    uint16_t weight; /* as Python set it */
    uint8_t state;   /* mlt_path_state */
    bool can_join;       /* bursts, for the kernel to cut */
    int64_t join_ns, join_wait_ns; /* not before; and how long after the last failure that was */
    int32_t last_error;  /* of sending, as it was told; 0: the last one went */
    uint32_t error_bytes; /* of a packet that was refused for its size: that smaller ones go shows nothing */
    int32_t turn;    /* of the weighted round robin */
    /* Sending */
    uint64_t sent_packets, sent_bytes, sent_stamp, echoed_packets, echoed_bytes;
    uint64_t acknowledged, lost, marked;
    uint32_t last_received, last_marked; /* as the peer's last acknowledgement said */
    uint64_t ack_stamp;
    struct checkpoint checkpoints[CHECKPOINTS];
    uint32_t checkpoint_next, checkpoint_count;
    int64_t rtt_ns, least_rtt_ns, heard_ns, waiting_since_ns; /* the last: first packet since `heard_ns`; 0: none */
    uint64_t sent_since_heard;
    uint64_t period_acknowledged, period_lost; /* as of the last look at the path's health */
    int64_t probe_ns, probe_wait_ns;
    int32_t good_probes;
    struct departures departures;
    /* Receiving */
    uint32_t received, received_marked, pending, pending_bytes;
    uint64_t newest_stamp;
    int64_t newest_arrived_ns;
};

/* ------------------------------------------------------------------------------------------ credit */

/* What is lost, and what of a window is kept because of it. */
struct losing {
    uint64_t expected_bytes, arrived_bytes; /* since it was last judged */
    double kept, first_share;               /* the latter: lost before the first of several cuts */
    int64_t random_until_ns;                /* until then losses are nobody's queue */
    uint8_t cuts;                           /* in a row */
};

/* Of a flow, both ways; numbers of bytes of 32 bits are counted since it began, modulo 2^32. */
struct credit {
    /* What we may send */
    uint32_t limit, sent;
    uint64_t limit_stamp; /* of the peer's datagram that told it */
    uint8_t asked;        /* in a row, without an answer */
    /* What the peer may send */
    uint32_t heard, told, most_told; /* that it has sent; the limit as it was last told, and the highest ever */
    uint32_t open;                   /* receives */
    struct link receives;            /* those that have begun, front layers first */
    uint64_t missing_bytes;          /* of these */
    uint32_t granted;
    double window_bytes; /* its part of the port's */
    struct losing losing;
    int64_t heard_ns;
    int64_t sampled_ns; /* 0: none; else when a limit was told, and above which limit a packet is the answer */
    uint32_t sampled_above;
};

struct port_memory {
    int64_t since_ns;
    double bps;
    uint32_t flows; /* with open receives, at once */
};

/* This host's port, through which all come that send to it. */
struct port {
    struct link flows; /* with receives that have begun */
    uint32_t open_flows;
    double told_bps, grown_bytes; /* by the files, or 0; what the window may have grown to since flows began */
    double most_bytes;            /* that its buffers take in */
    struct port_memory newer, older;
    int64_t margin_ns, base_ns, base_since_ns;
    int64_t latest_ns, loops_ns, loop_count; /* from a limit told to its use; of all since the last look */
    double pace_bytes;                       /* that may be granted now */
    int64_t paced_ns;
    struct timer timer;
    struct losing losing;
    double share; /* of what is sent here, lost, of late */
    double allowed; /* the share of the port that may be granted */
    uint64_t all_bytes; /* that have come */
    int64_t probing_until_ns, probed_ns;
    int64_t began_ns; /* when the first of the flows did */
    int64_t since_ns, last_ns; /* by arrivals */
    uint64_t expected_bytes, arrived_bytes, marked_bytes;
    int64_t marked_ns; /* when many packets had met a queue above S */
    bool is_marked;    /* of late */
    bool is_dirty, is_corrected, is_grown;
    bool had_room; /* not all of the window had a use */
};

/* ------------------------------------------------------------------------------------------ transfers */

struct layout {
    uint64_t elements;
    uint32_t packets, elements_per_packet, full_bytes, last_bytes;
    uint8_t element_type, element_bytes;
};

struct burst {
    uint8_t first, count, is_important; /* in `order` */
};

/* One pass over a tensor, window by window. */
struct pass {
    uint32_t attempt; /* 1: everything; later ones: what is missing */
    uint32_t window_packets, windows, step, factor, shift;
    uint8_t phase;    /* of later passes: 0 important packets, 1 the others */
    uint8_t order[MLT_WINDOW_PACKETS];
    struct burst bursts[MLT_WINDOW_PACKETS];
    uint32_t base, burst_count, burst_next; /* the window at hand */
    uint64_t used_paths;
};

enum pending_message {
    SAY_READY = 1,
    SAY_STATUS_REQUEST = 2,
    SAY_BITMAP = 4,
    SAY_STOP = 8,
    SAY_STOPPED = 16,
    SAY_CANCEL = 32,
    SAY_REGISTER = 64,
};

/* An end that the other end's post comes too late for, and will hear of: our send failed before the peer's READY, or the
 * peer's receive was over before our send. */
enum early_end { EARLY_NONE, EARLY_SEND, EARLY_RECEIVE };

enum sender_stage { WAITS_FOR_READY, SENDS, LINGERS, WAITS_FOR_BITMAP };

/* Packets of a transfer that were found to be lost, in this order: each one's `left` has the next one. */
struct lost {
    uint32_t first, last, count;
    struct link link; /* in the flow's list of transfers with lost packets of this kind */
};

enum packet_kind { NORMAL = 0, CRITICAL = 1 };

/* The burst that leaves next. */
struct at_hand {
    struct transfer *transfer;
    uint32_t packets[MLT_BURST_PACKETS], count;
    bool is_important, is_repair;
};

/* One peer's tensors in a gather. */
struct gather_link {
    struct link link; /* in the gather */
    struct gather *gather;
    struct flow *flow;
    struct link members; /* open transfers */
    uint64_t posted_bytes, arrived_bytes;
    int64_t began_ns, lt_ns; /* the latter as it was posted */
    bool is_due, is_enough, is_over; /* its LT has passed; the percentage is there; the deadline has passed */
    struct timer timer;
};

struct gather {
    struct link link; /* in the core */
    struct link links;
    uint64_t number;
    double percentage;
    int64_t slack_ns;
    uint32_t open, link_count; /* transfers, and whoever walks through it */
};

struct transfer {
    struct mlt_result result;
    struct flow *flow;
    struct entry *entry, *spare;
    uint32_t slot;
    uint8_t holders; /* the user, the core, a message still to be said; under the lock */
    bool is_done, notify; /* under the lock */
    bool is_open;    /* the core's own view */
    struct timer timer;
    struct link sending; /* in the flow's list, by priority */
    uint64_t not_before; /* the peer's stamps up to this one are of an earlier transfer */
    struct layout layout;
    uint8_t *memory;
    uint8_t *arrived, *important; /* bits of packets; `important` of a send: as decided */
    /* Sending */
    struct mlt_send send;
    float threshold;
    bool has_threshold;
    enum sender_stage stage;
    int64_t deadline_ns; /* NEVER: none */
    struct pass pass;
    uint32_t bitmap_next; /* byte of the peer's bitmap that comes next */
    bool has_final_bitmap;
    /* Where repairs are made at once: of each packet where it left last, a 1, 6 bits of the path and 25 of the departure's
     * number (0: it has not), or the next one that is lost; null elsewhere */
    uint32_t *left;
    uint8_t *is_lost; /* bits: in one of these: */
    struct lost lost[2];
    /* Receiving */
    struct mlt_policy policy;
    uint32_t attempt;     /* that the sender asked about; 0: not yet */
    uint64_t marked_paths, heard_paths, heard_next_paths; /* of this attempt, and of the next */
    int64_t straggle_ns;  /* until when the answer waits; NEVER: nothing to answer */
    bool knows_important, is_soft_over;
    uint32_t bitmap_said; /* bytes of the bitmap in frames already */
    struct gather_link *gathered_in; /* null: its stop rule is another */
    struct link gathered;
    struct link receiving; /* in the flow's credit */
    uint16_t layer;        /* as its first packet said */
    bool is_counted;       /* among the flow's open receives */
};

/* What a flow knows of one (tensor, round, direction): a transfer of ours, an offer of the peer's, that the last
 * transfer is not yet over at the peer, or an early end. Also what is still to be said of it. */
struct entry {
    struct entry *next; /* of the same bucket */
    uint32_t tensor, round;
    bool is_send;
    bool is_offer;      /* the peer waits for our send */
    bool is_closing;    /* our receive is over, the peer has not yet said so */
    bool has_announced; /* our receive, to the peer */
    bool was_silent;    /* what CANCEL is about: a receive that ended before it was announced */
    uint8_t early_end;
    uint8_t offer_type;
    bool offer_takes_rest; /* at its hard time: anything may be missing */
    uint32_t offer_loss;   /* that it may be without, in parts of a million */
    uint64_t offer_elements;
    uint8_t says; /* pending_message */
    uint8_t reason; /* of CANCEL, or of the early end: a negative mlt_status */
    struct link talk, early;
    struct transfer *transfer; /* open */
    struct transfer *ended;    /* of which there is something to say */
    char text[MLT_TEXT_BYTES];
};

struct entry_table {
    struct entry **buckets;
    uint32_t size, count; /* size is a power of 2 */
};

/* ------------------------------------------------------------------------------------------ control stream */

struct frame {
    uint8_t *bytes;
    uint16_t length;
    bool is_there;   /* outgoing: not yet acknowledged; incoming: arrived early */
    uint8_t tries;
    int64_t sent_ns;
};

struct user_message {
    struct user_message *next;
    int32_t length;
    uint8_t bytes[];
};

struct user_queue {
    struct user_message *first, **last;
};

struct control {
    struct frame out[CONTROL_FRAMES], in[CONTROL_FRAMES]; /* number modulo CONTROL_FRAMES */
    uint8_t *memory;
    uint32_t next, unacknowledged; /* numbers of frames, from 1 */
    uint32_t expected;
    uint8_t path, heard_path; /* where new frames begin; where the peer's last datagram came from */
    bool reply_now, reply_later;
    int64_t rtt_ns;
    struct link talk;       /* entries with something to say */
    struct link waiting;    /* receives to be announced when the peer has room for more offers */
    struct user_queue user; /* not yet in a frame */
    bool says_credit;
};

/* A piece of a bitmap that acknowledgements name: the next so many of them. */
struct naming {
    struct transfer *transfer;
    uint32_t piece;
    uint8_t times;
};

struct flow {
    struct mlt *core;
    uint64_t token, peer_token;
    struct mlt_flow_options options;
    struct gmac send_gmac, receive_gmac;
    uint32_t overhead_bytes, send_body_bytes, receive_body_bytes; /* of a datagram: header and tag, and without them */
    uint32_t frame_bytes;
    uint64_t stamp; /* of the last packet sent */
    uint64_t received_stamp; /* the highest seen */
    struct path *paths; /* behind the flow, in the same memory */
    int path_count;
    uint64_t pending_paths, reply_paths; /* acknowledgements that are due some time, and now */
    struct controller controller;
    struct credit credit;
    struct link receiving;   /* in core->port */
    double credit_bytes;
    int64_t credit_ns;
    uint64_t in_flight_bytes;
    int64_t heard_ns, looked_ns, probed_ns, flight_since_ns;
    struct control control;
    struct entry_table table;
    struct entry *last_entry; /* that got data */
    struct link early_ends;   /* entries, the oldest first */
    uint32_t offers, announced, early_count;
    uint32_t open;            /* transfers */
    struct link sending;      /* sends with something to send, by priority */
    struct link critical;     /* those with critical packets that have not been sent yet */
    struct link lost[2];      /* those with lost packets */
    uint32_t reordering;      /* so many packets from behind are proof of a loss */
    uint32_t tail_doublings;
    int64_t late_ns;          /* when a packet was last late, and not lost */
    int64_t told_rtt_ns;      /* in REGISTER */
    double told_bps;
    struct naming namings[NAMINGS];
    uint32_t naming_count;
    struct link active;       /* in core->active: may send now */
    struct link replying;     /* in core->replying: acknowledgements or control to be built */
    struct timer timers[FLOW_TIMERS]; /* by their kind */
    struct mlt_flow_statistics statistics;
    /* Under the lock */
    struct user_queue inbox;
    uint64_t user_taken, user_told, user_sent, user_credit;
    uint64_t user_received; /* the core's */
};

/* ------------------------------------------------------------------------------------------ output */

/* A message to the kernel: one datagram, or a burst with a segment size. */
struct outgoing {
    struct flow *flow;
    struct transfer *owner; /* whose tensor the parts point into, or null */
    uint16_t path, packets;
    uint8_t tos;
    uint32_t bytes, segment_bytes;
    int32_t first_part, parts;
};

struct batch {
    struct outgoing messages[BATCH_MESSAGES];
    struct iovec parts[BATCH_PARTS];
    /* A tag lies before the next packet's header, so that both are one part. */
    uint8_t slots[BATCH_PACKETS + 1][TAG_BYTES + HEADER_BYTES];
    uint8_t small[BATCH_MESSAGES][HEADER_BYTES + FRAME_BYTES + TAG_BYTES];
    int32_t count, part_count, packets, smalls;
    uint64_t bytes;
    int32_t done; /* messages that the kernel has */
};

/* Where messages go: to sockets or into memory. Returns how many of the batch's messages from `done` on are gone. */
typedef int (*emit_function)(struct mlt *, struct batch *);

enum command_kind {
    COMMAND_OPEN, COMMAND_CLOSE, COMMAND_POST, COMMAND_FINISH, COMMAND_CANCEL, COMMAND_WEIGHTS, COMMAND_RATE,
    COMMAND_MESSAGE, COMMAND_TAKEN, COMMAND_TOS, COMMAND_SHARE,
};

struct command {
    struct command *next;
    enum command_kind kind;
    struct flow *flow;
    struct transfer **transfers; /* COMMAND_POST: array of `count` */
    int32_t count;
    struct transfer *transfer;
    struct user_message *message;
    struct mlt_rate_options rate;
    double share;
    uint8_t tos_important, tos_unimportant;
    uint16_t weights[MLT_MOST_PATHS];
    char text[MLT_TEXT_BYTES];
};

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct command *first, **last;
    struct flow **flows;     /* by the token's first 16 bits */
    uint64_t *tokens;        /* reserved or open ones; 0: free */
    uint32_t next_flow, flow_cursor; /* numbers below the first have been given */
    struct transfer **slots;
    uint32_t *generations, *free_slots;
    uint32_t slot_count, next_slot, free_count;
    struct mlt_event *events;
    uint32_t event_first, event_count, event_room;
    int event_descriptor, wake_descriptor;
    bool is_threaded, is_dead;
};

struct sockets; /* socket.c */

struct mlt {
    struct shared shared;
    int64_t now_ns;
    uint64_t random;
    struct timers timers;
    struct link active, replying, gathers;
    struct port port;
    struct batch batch;
    bool is_blocked; /* the kernel takes no more of the batch for now */
    emit_function emit;
    struct flow **flows; /* the core's view, by number */
    uint64_t token_random;
    bool is_seeded, has_more, is_in_bulk; /* the last: much of a tensor is on its way to us */
    struct mlt_counters counters;
    struct sockets *sockets;
    pthread_mutex_t turn;       /* of the thread, or of a caller that does its own command while the thread sleeps */
    int64_t sleeps_until_ns;
    int64_t bulk_ns; /* when a piece of a long tensor last went either way */
    uint64_t cannot_segment; /* sockets, a bit each */
    int slots_wanted, process;
    /* Virtual time */
    uint8_t *output;
    size_t output_first, output_end, output_room;
};

/* core.c: turns, timers, lists, ends of transfers */
void link_init(struct link *link, void *owner);
bool link_is_in(const struct link *link);
void link_append(struct link *list, struct link *link);
void link_remove(struct link *link);
void timer_init(struct timer *timer, enum timer_kind kind, void *owner);
void timer_set(struct mlt *core, struct timer *timer, int64_t at_ns);
void timer_cancel(struct mlt *core, struct timer *timer);
uint64_t random_next(uint64_t *state);
void core_init(struct mlt *core, const struct mlt_options *options);
bool core_turn(struct mlt *core, int64_t now_ns); /* whether there is more to send now */
void core_event(struct mlt *core, const struct mlt_event *event);
void transfer_end(struct transfer *transfer, int status, const char *text);
void flow_fail(struct flow *flow, int status, const char *text);
void flow_reply(struct flow *flow);
void flow_activate(struct flow *flow);

/* handle.c */
int handle_check(const struct mlt *core);
void handle_signal(int descriptor);
struct transfer *handle_transfer(const struct shared *shared, uint64_t id); /* under the lock */
void transfer_hold(struct mlt *core, struct transfer *transfer);             /* takes the lock, as the next */
void transfer_unhold(struct mlt *core, struct transfer *transfer);

/* commands.c, post.c: what other threads ask for */
struct flow *handle_flow(const struct shared *shared, uint64_t token); /* under the lock */
struct command *command_new(enum command_kind kind);
bool commands_queue(struct shared *shared, struct command *command); /* under the lock; whether the core must be woken */
void commands_run(struct mlt *core);
void transfers_post(struct mlt *core, struct transfer **transfers, int32_t count);

/* batch.c: messages on their way out */
bool batch_has_room(const struct mlt *core, int packets, uint64_t bytes);
void batch_flush(struct mlt *core);
void batch_forget(struct mlt *core, const struct transfer *transfer, const struct flow *flow);
uint8_t *batch_small(struct flow *flow, uint8_t kind, int path, uint8_t tos); /* its zeroed header; null: no room */
uint64_t batch_small_done(struct flow *flow, uint8_t *header, uint32_t body_bytes); /* returns the stamp */
void flow_tag(const struct gmac *gmac, const uint8_t *salt, const uint8_t *header, const struct iovec *parts, int count,
              uint8_t *tag);
int memory_emit(struct mlt *core, struct batch *batch);

/* table.c: entries of a flow, and bits */
struct entry *entry_find(const struct flow *flow, uint32_t tensor, uint32_t round, bool is_send);
struct entry *entry_take(struct flow *flow, uint32_t tensor, uint32_t round, bool is_send, struct entry *spare);
void entry_settle(struct flow *flow, struct entry *entry); /* frees it where nothing holds it any more */
void entry_say(struct flow *flow, struct entry *entry, uint8_t message);
void entry_withdraw(struct flow *flow, struct entry *entry); /* the peer's offer */
void entry_announced_no_more(struct flow *flow, struct entry *entry);
void entry_reopen(struct flow *flow, struct entry *entry); /* the peer has said that the last transfer is over */
void entry_reason(struct entry *entry, int status, const char *text);
void entry_keep_end(struct flow *flow, struct entry *entry, enum early_end early_end, int status, const char *text);
void entry_forget_end(struct flow *flow, struct entry *entry);
void entry_table_free(struct flow *flow);
bool layout_of(struct layout *layout, uint8_t element_type, uint64_t elements, uint32_t body_bytes);
static inline uint32_t layout_bytes(const struct layout *layout, uint32_t packet)
{
    return packet == layout->packets - 1 ? layout->last_bytes : layout->full_bytes;
}
static inline bool bit_is_set(const uint8_t *bits, uint32_t number) { return bits[number >> 3] >> (number & 7) & 1; }
static inline void bit_set(uint8_t *bits, uint32_t number)
{
    bits[number >> 3] = (uint8_t)(bits[number >> 3] | 1 << (number & 7));
}

/* control.c: the reliable stream of messages */
bool control_open(struct flow *flow);
void control_build(struct flow *flow);
void control_received(struct flow *flow, const uint8_t *datagram, uint32_t body_bytes, int path);
void control_timeout(struct flow *flow);

/* messages.c: what is said, and what follows from it */
uint32_t messages_fill(struct flow *flow, uint8_t *bytes, uint32_t room);
bool messages_take(struct flow *flow, const uint8_t *bytes, uint32_t length);

/* send.c, order.c, importance.c */
void send_begin(struct transfer *transfer);
void send_ready(struct transfer *transfer);
void send_all_important(struct transfer *transfer);
void send_again(struct transfer *transfer);
void send_end_pass(struct transfer *transfer);
void send_join(struct link *list, struct transfer *transfer); /* by priority */
void send_peek(struct transfer *transfer, struct at_hand *hand);
void send_took(const struct at_hand *hand);
int64_t send_flow(struct flow *flow); /* bytes; 0: it may not send now */
void pass_begin(struct transfer *transfer, uint32_t attempt);
bool pass_window(struct transfer *transfer); /* the next that has something to send */
uint32_t burst_packets(const struct transfer *transfer); /* at most */

/* queues.c, departures.c, names.c: repairs at once */
static inline bool repairs_at_once(const struct flow *flow) { return flow->options.repair == MLT_AT_ONCE; }
static inline bool flow_has_data(const struct flow *flow)
{
    return link_is_in(&flow->sending) || link_is_in(&flow->critical) || link_is_in(&flow->lost[NORMAL])
        || link_is_in(&flow->lost[CRITICAL]);
}
bool queues_peek(struct flow *flow, struct at_hand *hand);
void queues_taken(const struct at_hand *hand);
void queues_lost(struct transfer *transfer, uint32_t packet);
void queues_leave(struct transfer *transfer);
void queues_told(struct flow *flow); /* news of the round trip or the bottleneck */
bool departures_open(struct flow *flow);
void departures_free(struct flow *flow);
void departures_add(struct flow *flow, int path, const struct at_hand *hand);
void departures_named(struct transfer *transfer, uint32_t packet);
void departures_look(struct flow *flow); /* for losses */
void departures_give_up(struct flow *flow, struct path *path); /* all that left on it */
void departures_tail(struct flow *flow);
void departures_forget(const struct transfer *transfer);
bool names_note(struct transfer *transfer, uint32_t packet); /* whether they should be said now */
bool names_are_new(const struct flow *flow);
uint32_t names_put(struct flow *flow, uint8_t *at, uint32_t room);
void names_forget(const struct transfer *transfer);
bool names_take(struct flow *flow, uint64_t stamp, const uint8_t *at, uint32_t bytes); /* false: nonsense */

/* credit.c: what the peer may send, and we */
void port_init(struct port *port);
void port_told(struct port *port, const struct mlt_flow_options *options);
void port_divide(struct mlt *core);
struct mlt_port port_state(const struct port *port);
bool credit_cut(struct flow *flow, struct at_hand *hand); /* to what it may send now; false: nothing */
uint32_t credit_spend(struct flow *flow, uint32_t bytes);
void credit_ask(struct flow *flow);
void credit_granted(struct flow *flow, uint64_t stamp, uint32_t limit);
void credit_posted(struct transfer *transfer);
void credit_begun(struct transfer *transfer);
void credit_arrived(const struct transfer *transfer); /* one packet more */
void credit_ended(struct transfer *transfer);
/* False: it had no credit. `is_new`: it is no replay of a packet of long ago. */
bool credit_heard(struct flow *flow, uint32_t sent, uint32_t bytes, bool is_new, bool is_marked, int64_t arrived_ns);
uint32_t credit_told(struct flow *flow);

/* gather.c */
bool gather_join(struct transfer *transfer); /* false: no memory, or a limit is reached */
void gather_begun(const struct transfer *transfer);
void gather_arrived(struct transfer *transfer);
void gather_told(const struct flow *flow); /* the peer has registered */
void gather_timeout(struct gather_link *link);
void gather_leave(struct transfer *transfer);
void gather_forget(const struct flow *flow);
float importance_threshold(const struct transfer *transfer);
float importance_mean(const struct layout *layout, const uint8_t *memory, uint32_t packet);
uint8_t element_bytes(uint8_t element_type); /* 0: unknown */

/* receive.c, completion.c */
void receive_message(struct mlt *core, const uint8_t *bytes, uint32_t length, uint32_t segment_bytes, uint8_t tos,
                     int64_t arrived_ns);
void replies_build(struct flow *flow);
void completion_begin(struct transfer *transfer);
void completion_begun(struct transfer *transfer); /* its first sign of life has come */
void completion_arrived(struct transfer *transfer);
bool completion_asked(struct transfer *transfer, uint32_t attempt, uint32_t important, uint64_t paths);
void completion_marked(struct transfer *transfer, uint32_t attempt, int path);
void completion_end(struct transfer *transfer, enum mlt_ending ending);
bool completion_is_within_bounds(const struct transfer *transfer);
void transfer_timeout(struct transfer *transfer);
void transfer_cancel(struct transfer *transfer, int status, const char *text);

/* paths.c, rate.c */
int path_choose(struct flow *flow);
int path_for_control(const struct flow *flow, int wanted);
void path_sent(struct flow *flow, int path, uint64_t stamp, uint32_t packets, uint64_t bytes);
void path_acknowledged(struct flow *flow, int path, const uint8_t *datagram, int64_t arrived_ns);
void path_probe(struct flow *flow, int path, const struct transfer *transfer, uint32_t attempt, uint8_t tos);
void paths_look(struct flow *flow); /* at their health */
void path_gone(struct flow *flow, uint64_t bytes);
int64_t flow_rtt(const struct flow *flow);
void controller_init(struct controller *controller, const struct mlt_rate_options *options);
void controller_set(struct controller *controller, const struct mlt_rate_options *options);

/* socket.c */
int sockets_emit(struct mlt *core, struct batch *batch);
void sockets_free(struct mlt *core);
bool sockets_has(const struct mlt *core, int number, bool is_for_frames);
void sockets_wake(struct mlt *core, bool is_needed); /* commands have been queued; not under the lock */

#endif
