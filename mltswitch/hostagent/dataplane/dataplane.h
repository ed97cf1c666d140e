/* The face of the data plane: everything that Python, or a test, can ask of it.
 *
 * The binding compiles against this file and reads its declarations, so that no structure is written twice; lines of
 * the preprocessor are all that it leaves out. Only declarations belong here, and only those that a caller needs.
 *
 * One handle is one agent. It has flows (one a peer), each with paths, and transfers within a flow: sends and receives
 * of one tensor in one round. A caller posts transfers and waits for them; packets, acknowledgements, control
 * messages, retransmission and deadlines are the data plane's. Two doors lead to the same code: `mlt_start` runs it in
 * a thread of its own, with sockets; without, `mlt_feed` and `mlt_step` run it in the caller's time, from memory.
 *
 * All functions may be called from any thread, but those of virtual time from one at a time. Where nothing else is
 * said they return 0 or a negative `mlt_status`.
 */
#ifndef MLT_DATAPLANE_H
#define MLT_DATAPLANE_H

#include <stdint.h>

enum mlt_limit {
    MLT_MOST_PATHS = 64,           /* of a flow; sets of paths are 64-bit words */
    MLT_MOST_SOCKETS = 64,
    MLT_MOST_FLOWS = 65535,        /* their number is 16 bits of the token */
    MLT_MOST_TRANSFERS = 1048576,  /* not yet released, of a handle */
    MLT_MOST_OFFERS = 4096,        /* receives that a peer has announced and we have not posted a send for, of a flow */
    MLT_MOST_PACKETS = 134217728,  /* of a tensor: 16 MB of bitmap */
    MLT_WINDOW_BYTES = 131072,     /* of a tensor that are classified, cut and sent while they are in the cache */
    MLT_WINDOW_PACKETS = 128,
    MLT_BURST_PACKETS = 64,        /* UDP_MAX_SEGMENTS of Linux before 6.9 */
    MLT_BURST_BYTES = 65000,       /* of one burst, below the longest UDP payload */
    MLT_LEAST_DATAGRAM_BYTES = 256,
    MLT_MOST_DATAGRAM_BYTES = 65000,
    MLT_MOST_USER_BYTES = 1024,    /* of one message */
    MLT_USER_CREDIT_BYTES = 65536, /* of messages that the reader has not taken, lengths included, each way */
    MLT_TEXT_BYTES = 96,
    MLT_KEY_BYTES = 16,
    MLT_SALT_BYTES = 4,
    MLT_ADDRESS_BYTES = 28,        /* struct sockaddr_in6 */
    MLT_FRAME_BYTES = 96,          /* before the UDP payload: Ethernet, source route, IPv4 without options, UDP */
};

enum mlt_status {
    MLT_OK = 0,
    MLT_PENDING = 1,           /* not yet done */
    MLT_INVALID = -1,          /* an argument contradicts this file */
    MLT_NO_MEMORY = -2,
    MLT_UNKNOWN = -3,          /* no such flow or transfer */
    MLT_FULL = -4,             /* a named limit is reached */
    MLT_BUSY = -5,             /* the same tensor and round is open already, or not yet done */
    MLT_DEAD = -6,             /* after a fork, or after mlt_stop */
    MLT_SYSTEM = -7,           /* errno says more */
    MLT_DEADLINE = -8,         /* its time was up */
    MLT_CANCELLED = -9,        /* by us */
    MLT_PEER_CANCELLED = -10,  /* `text` says why */
    MLT_PEER_DEADLINE = -11,   /* the peer's time was up */
    MLT_PEER_SILENT = -12,     /* nothing heard for the flow's `silence_ns` */
    MLT_FLOW_CLOSED = -13,
    MLT_MISMATCH = -14,        /* the ends name different element types or counts */
    MLT_PROTOCOL = -15,        /* the peer says what cannot be */
};

enum mlt_element_type {
    MLT_FLOAT32 = 1,
    MLT_FLOAT16 = 2,
    MLT_BFLOAT16 = 3,
    MLT_FLOAT64 = 4,
    MLT_INT8 = 5,
    MLT_INT16 = 6,
    MLT_INT32 = 7,
    MLT_INT64 = 8,
    MLT_BYTES = 9,
};

enum mlt_importance {
    MLT_ALL_IMPORTANT = 0,
    MLT_NONE_IMPORTANT = 1,
    MLT_BY_MAGNITUDE = 2, /* packets whose mean |element| reaches the median of a sample of packets */
    MLT_BY_BITMAP = 3,    /* the caller's, a bit a packet, least significant first */
    MLT_EDGES = 4,        /* the first packet and the last one */
};

enum mlt_lt { MLT_LT_REGISTERED = -1 };

enum mlt_moment { MLT_FROM_POST = 0, MLT_FROM_PEER_READY = 1, MLT_FROM_FIRST_BYTE = 2 };

enum mlt_stop_rule {
    MLT_PATIENT = 0, /* a bound is permission to end when waiting would cost time */
    MLT_PAPER = 1,   /* end as soon as the bounds are met (MLT, section 4.2) */
    MLT_GATHERED = 2, /* as its gather says (LTP, section III-B) */
};

/* How a flow's sender finds what is missing, and sends it again; both ends are told the same. */
enum mlt_repair {
    MLT_IN_PASSES = 0, /* MLT: it asks behind each pass over a tensor */
    MLT_AT_ONCE = 1,   /* LTP: acknowledgements name packets */
};

/* Why a receive has ended well. */
enum mlt_ending {
    MLT_COMPLETE = 0,
    MLT_WITHIN_BOUNDS = 1,
    MLT_TAKEN = 2,         /* its time was up, or the caller took what was there */
    MLT_AT_PERCENTAGE = 3, /* by its gather, between the link's LT and the deadline, */
    MLT_AT_DEADLINE = 4,   /* and from then on */
};

enum mlt_at_hard_time { MLT_FAIL = 0, MLT_TAKE = 1 };

enum mlt_controller_kind { MLT_TIMELY = 0, MLT_EXTERNAL = 1, MLT_BBR = 2, MLT_CREDIT = 3 };

enum mlt_path_state { MLT_PATH_USED = 0, MLT_PATH_DEAD = 1, MLT_PATH_GRAY = 2 };

enum mlt_feature { MLT_SEGMENTATION = 1, MLT_COALESCING = 2, MLT_TIMESTAMPS = 4 };

enum mlt_event_kind {
    MLT_EVENT_DONE = 1,      /* a transfer with `notify`; its status is in `value` */
    MLT_EVENT_PATH = 2,      /* `path` has the state `value` now */
    MLT_EVENT_USER = 3,      /* the flow has messages to take */
    MLT_EVENT_SAMPLE = 4,    /* for an external controller: see `sample` */
    MLT_EVENT_SILENT = 5,    /* nothing heard: all transfers of the flow have failed; the peer may not know: close it */
    MLT_EVENT_PROTOCOL = 6,  /* the peer broke the protocol: all transfers of the flow have failed */
    MLT_EVENT_SEND_ERROR = 7, /* the kernel refused to send `transfer` datagrams at once on `path`; `value` is the errno;
                                 0: it sends again */
    MLT_EVENT_PORT = 8,      /* of no flow: packets come at `value` bit/s, which is far from `port_bps` */
};

struct mlt;

struct mlt_options {
    uint64_t seed;           /* of tokens and of virtual time's every choice; 0: from the system */
    uint32_t most_transfers; /* 0: 65536 */
    uint32_t events;         /* of the ring; 0: 4096, and one a transfer */
    int64_t now_ns;          /* where virtual time begins */
};

struct mlt_path {
    int32_t socket;                     /* by mlt_add_socket */
    uint8_t address[MLT_ADDRESS_BYTES]; /* struct sockaddr_in or _in6 */
    uint16_t weight;                    /* of bursts, relative; 0: not used */
    /* Of a packet socket: all before the UDP payload of each datagram. Lengths, DSCP/ECN and the checksum of IPv4 are
     * filled in, that of UDP is 0. Other sockets: 0 bytes. */
    uint8_t frame_bytes;
    uint8_t frame[MLT_FRAME_BYTES];
};

struct mlt_rate_options {
    double cap_bps;   /* line rate, or the share of it that the flow may have; 0: 100 Gbit/s */
    double floor_bps; /* 0: a thousandth of the cap */
    double rate_bps;  /* of an external controller */
    double increase_bps, decrease; /* TIMELY's delta (MLT's alpha) and beta; 0: 40 Mbit/s and 0.8 */
    int64_t low_ns, high_ns;       /* T_low and T_high above the least round trip seen; 0: a guess */
    int64_t sample_ns;             /* of an external controller: between two samples at least */
    double inflight_gain;          /* of BBR: on the way, over what a round trip carries; 0: 2 */
    uint32_t window_bytes;         /* on the way at once at most, about half of the peer's socket buffer; 0: 2 MB */
    uint32_t initial_window_bytes; /* after a pause; 0: a millisecond's at the cap, 8 to 64 KB */
    uint8_t kind;
};

struct mlt_flow_options {
    uint64_t peer_token;
    uint32_t send_datagram_bytes, receive_datagram_bytes; /* UDP payload, the largest either way */
    int64_t silence_ns;    /* 0: 10 s */
    int64_t ack_delay_ns;  /* 200 us at least */
    uint32_t ack_packets;  /* of a path, between acknowledgements; 0: 16 */
    uint8_t control_tos;
    uint8_t has_keys;
    uint8_t spray_random;  /* the path of each burst by chance, in the weights' ratio; 0: in turn */
    uint8_t repair;
    double port_bps;               /* with credit: of this host's port, as far as anybody says; 0: found out */
    uint32_t receive_window_bytes; /* that this host's buffers take in, of all flows with credit; 0: 2 MB */
    uint8_t has_credit; /* each end sends what the other has granted; both are told the same */
    uint8_t send_key[MLT_KEY_BYTES], receive_key[MLT_KEY_BYTES];
    uint8_t send_salt[MLT_SALT_BYTES], receive_salt[MLT_SALT_BYTES];
    struct mlt_rate_options rate;
};

/* When a gather's receives may end early. Those of one flow with one `number` are a link, whose clock starts with its
 * first packet; all of one number share the deadline, which is the longest LT of its links, and the slack. */
struct mlt_gather {
    uint64_t number;     /* 0: the receive is a gather of its own */
    double percentage;   /* of the link's bytes: enough between its LT and the deadline */
    int64_t lt_ns;       /* of the link; 0: not known, all is waited for; MLT_LT_REGISTERED: as the sender's numbers say */
    int64_t slack_ns;
};

/* The completion policy of a receive; the sender learns it with the receive's announcement. */
struct mlt_policy {
    double loss_bound;      /* share of elements, and of packets, that may be missing */
    double important_bound; /* share of important packets that may be; 1: not asked */
    int64_t soft_ns;        /* from then on the bounds are enough under any rule; 0: none */
    int64_t hard_ns;        /* 0: none */
    uint8_t moment;         /* from which both count; the peer is ready when its first packet, or question, comes */
    uint8_t stop_rule, at_hard_time;
    uint8_t keep_missing;   /* what is missing keeps its memory's content, instead of zeros */
    struct mlt_gather gather; /* of MLT_GATHERED */
};

struct mlt_send {
    uint64_t flow; /* our token */
    const void *elements;
    uint64_t element_count;
    const uint8_t *important; /* MLT_BY_BITMAP: copied */
    int64_t deadline_ns;      /* 0: none */
    uint64_t seed;            /* of the order on the wire, together with the round */
    uint32_t tensor, round;
    int32_t priority;         /* lower ones first */
    uint16_t layer, burst_packets; /* 0: as many as fit */
    uint8_t element_type, importance, tos_important, tos_unimportant, moment, notify;
    uint8_t important_if_whole; /* all packets are, whatever `importance`, where the receiver may miss none */
};

struct mlt_receive {
    uint64_t flow;
    void *elements;
    uint64_t element_count;
    uint32_t tensor, round;
    uint8_t element_type, notify;
    struct mlt_policy policy;
};

/* What there is to say about a transfer. While it is open its numbers grow, and those of one look need not be of one
 * moment. Times are of the monotonic clock. */
struct mlt_result {
    uint64_t transfer, flow;
    int32_t status; /* MLT_PENDING until it is done */
    uint32_t tensor, round;
    uint32_t packets, important_packets; /* of the tensor; the latter as far as it is known */
    uint32_t elements_per_packet;
    uint32_t arrived_packets, arrived_important; /* different ones, at the receiver */
    uint64_t sent_packets, sent_bytes, resent_packets, received_packets, received_bytes;
    uint64_t duplicate_packets, marked_packets;
    uint32_t passes;                  /* over the tensor, whole or in part */
    uint32_t needless_packets;        /* sent again though the first one had only been late */
    uint8_t is_send, is_partial;      /* whether something is missing */
    uint8_t ending;                   /* mlt_ending, where the status is MLT_OK */
    int64_t lt_ns, deadline_ns;       /* of its link, from the link's first packet; 0: none */
    int64_t posted_ns, ready_ns, first_ns, last_ns, ended_ns; /* 0: not yet; ready_ns: the peer's announcement */
    const uint8_t *arrived;           /* a bit a packet, valid until the release; of a send: once it is done */
    char text[MLT_TEXT_BYTES];        /* of an error */
    uint32_t by_path[MLT_MOST_PATHS]; /* packets sent, or received */
};

struct mlt_sample { /* of a flow, since the last one */
    uint64_t delivered_bytes, delivered_packets, lost_packets, marked_packets;
    uint64_t in_flight_bytes, window_bytes; /* on the way now, and what may be */
    int64_t least_rtt_ns, interval_ns;
};

struct mlt_event {
    uint64_t flow, transfer;
    int64_t value;
    int32_t kind, path;
    struct mlt_sample sample;
};

struct mlt_path_statistics {
    uint64_t sent_packets, sent_bytes, acknowledged_packets, lost_packets, marked_packets;
    uint64_t received_packets, received_marked;
    int64_t rtt_ns, least_rtt_ns, heard_ns;
    uint16_t weight;
    uint8_t state, segmentation; /* the latter: whether bursts are joined now */
};

struct mlt_flow_statistics {
    double rate_bps, window_bytes;
    int64_t rtt_ns, base_rtt_ns;
    uint64_t in_flight_bytes, control_frames, control_resent;
    uint64_t forged, stale, refused; /* datagrams: a wrong tag; an old stamp; of no open transfer, or malformed */
    uint64_t ungranted, overgranted; /* packets that the peer had no credit for; grants of more than any port takes */
    uint64_t open_transfers, timeouts, needless_packets;
    double bandwidth_bps; /* of the bottleneck, as BBR has it; 0: not known */
    int64_t peer_base_rtt_ns; /* as the peer has registered them for what it sends to us; 0: not yet */
    double peer_bandwidth_bps;
    uint32_t unsaid; /* control frames, and transfers with something to say, that the peer has not acknowledged */
    uint32_t paths;
    struct mlt_path_statistics path[MLT_MOST_PATHS];
    uint64_t received_by_tos[256];
};

struct mlt_counters {
    uint64_t unknown_token, unknown_version; /* datagrams */
    uint64_t lost_events, turns, sleeps, receive_calls, receive_messages, send_calls, send_messages;
    uint64_t send_errors;
};

/* This host's port, as far as flows with credit know it. Its numbers need not be of one moment. */
struct mlt_port {
    double bps;             /* as the files say, or arrivals; 0: not known */
    uint64_t arrived_bytes; /* of datagrams, since the beginning */
    uint32_t open_flows;    /* with open receives */
};

/* A datagram, or a burst of datagrams of `segment_bytes` each, that virtual time's door hands out. */
struct mlt_output {
    uint64_t flow;
    int32_t socket, path;
    uint8_t address[MLT_ADDRESS_BYTES];
    uint32_t bytes, segment_bytes;
    uint8_t tos;
};

struct mlt *mlt_create(const struct mlt_options *options);
void mlt_destroy(struct mlt *handle); /* stops the thread; no other call may be in progress */
void mlt_forked(struct mlt *handle);  /* in a child: its copies of the descriptors are closed, so that it holds no port */
int mlt_start(struct mlt *handle);
int mlt_stop(struct mlt *handle);     /* whatever is open fails; sockets are closed, results stay */

int mlt_port(struct mlt *handle, struct mlt_port *port);
/* Grants take no more than this share of the port, above 0 to 1, since others on this host have the rest. */
int mlt_set_share(struct mlt *handle, double share);

/* Takes a duplicate of a bound UDP socket and sets what it needs; before mlt_start. Returns its number. Or of a packet
 * socket (SOCK_RAW, protocol 0, bound to an interface), which sends paths' frames; their answers come to a UDP socket. */
int mlt_add_socket(struct mlt *handle, int descriptor, uint32_t *features);

/* A token for the handshake; then the flow, as the handshake found it. */
int mlt_reserve(struct mlt *handle, uint64_t *token);
int mlt_open(struct mlt *handle, uint64_t token, const struct mlt_flow_options *options, const struct mlt_path *paths,
             int count);
int mlt_close(struct mlt *handle, uint64_t token); /* its transfers fail; or a reserved token is free again */
int mlt_set_weights(struct mlt *handle, uint64_t token, const uint16_t *weights, int count);
int mlt_set_rate(struct mlt *handle, uint64_t token, const struct mlt_rate_options *options);
int mlt_flow_statistics(struct mlt *handle, uint64_t token, struct mlt_flow_statistics *statistics);

/* Small messages, reliable and in order. MLT_FULL: the peer has not yet read enough of the others. `mlt_take_message`
 * returns the length of the one taken, 0 where there is none; messages have at least one byte. */
int mlt_send_message(struct mlt *handle, uint64_t token, const void *bytes, int length);
int mlt_take_message(struct mlt *handle, uint64_t token, void *bytes, int capacity);

/* All of them or none; numbers are written to `transfers`. The memory is shared until the transfer is done. */
int mlt_post_sends(struct mlt *handle, const struct mlt_send *sends, int count, uint64_t *transfers);
int mlt_post_receives(struct mlt *handle, const struct mlt_receive *receives, int count, uint64_t *transfers);
/* Returns MLT_OK when it is done, whatever its status; MLT_PENDING when the time is up. `result` may be null.
 * timeout_ns < 0: no limit. */
int mlt_wait(struct mlt *handle, uint64_t transfer, int64_t timeout_ns, struct mlt_result *result);
int mlt_result(struct mlt *handle, uint64_t transfer, struct mlt_result *result); /* now; done or not */
/* MLT_OK: it is done; MLT_PENDING: MLT_EVENT_DONE will come, as if it had been posted with `notify`. */
int mlt_notify(struct mlt *handle, uint64_t transfer);
int mlt_set_tos(struct mlt *handle, uint64_t transfer, uint8_t important, uint8_t unimportant); /* of a send, from now */
int mlt_finish(struct mlt *handle, uint64_t transfer); /* a receive takes what is there */
int mlt_cancel(struct mlt *handle, uint64_t transfer, const char *text);
int mlt_release(struct mlt *handle, uint64_t transfer); /* MLT_BUSY: not yet done */

int mlt_event_descriptor(struct mlt *handle); /* an eventfd: readable while there are events */
int mlt_next_event(struct mlt *handle, struct mlt_event *event); /* 1: there was one */
int mlt_counters(struct mlt *handle, struct mlt_counters *counters);

/* Virtual time. Of `bytes` every `segment_bytes` begin a datagram. */
int mlt_feed(struct mlt *handle, const void *bytes, uint32_t length, uint32_t segment_bytes, uint8_t tos,
             int64_t arrived_ns);
int mlt_step(struct mlt *handle, int64_t now_ns);
int64_t mlt_next_timer(struct mlt *handle); /* INT64_MAX: none; the time of the last step: more is to be sent */
/* Returns the bytes written, 0 where there is nothing more. */
int mlt_take_output(struct mlt *handle, struct mlt_output *output, void *bytes, uint32_t capacity);

#endif
