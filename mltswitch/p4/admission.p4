// SPDX-License-Identifier: Apache-2.0
// Selective dropping and marking before a packet is queued (MLT, section 5.2), by the bytes that wait.
//
// BMv2 tells how long a queue is only when a packet leaves it, so the number stands still while a starved queue
// grows. Here every admitted packet takes a ticket: the bytes ever admitted to its queue. A queue is first in,
// first out, so the ticket of the packet that left last says how many bytes have left, and what waits is the
// difference. A ticket heals what was lost: were a packet dropped by BMv2 itself, the next one to leave sets
// it right. And in a queue that was left empty after its last packet had come, and has been idle since, nothing
// waits, whatever the tickets say. Times are those of arrival, and BMv2 keeps packets a while before it looks at
// them, hence the pause; were one admitted later still, the next decision alone would overlook it.

// When the last packet arrived (microseconds) ++ its ticket.
register<bit<80>>(PLACES) admitted;
// When a packet left last ++ whether it left the queue empty ++ its ticket. forwarding.p4 reads it.
register<bit<81>>(PLACES) departed;

// The index is place ++ decision.
counter(4 * PLACES, CounterType.packets_and_bytes) decisions;
const bit<2> FORWARDED_UNMARKED = 0;
const bit<2> FORWARDED_MARKED = 1;
const bit<2> DROPPED_UNIMPORTANT = 2;
const bit<2> DROPPED_LIMIT = 3;

control Admission(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    meter(PLACES, MeterType.bytes) policers;

    action refuse(bool is_too_big) {
        if (is_too_big) {
            TELL(REFUSED_TOO_BIG);
        } else if (metadata.is_expired == 1) {
            TELL(REFUSED_EXPIRED);
        } else {
            REFUSE(REFUSED_RETURNED);
        }
    }

    // Above S, where it is not only the tickets that say so.
    action decide(bit<48> last_arrival, bit<32> waiting, bit<32> limit) {
        bit<48> left_at = metadata.departed[80:33];
        if (metadata.departed[32:32] == 1 && left_at >= last_arrival
                && standard_metadata.ingress_global_timestamp >= left_at + IDLE_MICROSECONDS) {
            metadata.decision = FORWARDED_UNMARKED;
        } else if (waiting >= limit) {
            metadata.decision = DROPPED_LIMIT;
        } else if ((headers.ipv4.isValid() ? headers.ipv4.ecn : headers.ipv6.ecn) == NOT_ECN_CAPABLE) {
            metadata.decision = DROPPED_UNIMPORTANT;
        } else {
            metadata.decision = FORWARDED_MARKED;
        }
    }

    action police() {
        bit<2> color;
        policers.execute_meter(metadata.place, color);
        if (color != METER_GREEN) {
            metadata.decision = DROPPED_LIMIT;
        }
    }

    // The checksum follows (RFC 1624, equation 3).
    action mark() {
        SET_TRAFFIC_CLASS_BITS(ecn, CONGESTION_EXPERIENCED, 0);
    }

    action enqueue(bit<32> last_ticket) {
        metadata.ticket = last_ticket + standard_metadata.packet_length;
        admitted.write(metadata.place, standard_metadata.ingress_global_timestamp ++ metadata.ticket);
        standard_metadata.egress_spec = metadata.port;
        standard_metadata.priority = metadata.queue;
    }

    // The same S and L mean that nothing is selective. A tag or a source route takes nothing from `frame_bytes`.
    action admit(bit<32> ecn_threshold, bit<32> limit, bit<1> policed, bit<32> frame_bytes) {
        bool is_too_big = standard_metadata.packet_length > frame_bytes + (bit<32>)metadata.more_link_bytes;
        if (is_too_big || metadata.is_expired == 1
                || metadata.port == standard_metadata.ingress_port && metadata.may_return == 0) {
            refuse(is_too_big);
        } else {
            bit<80> last;
            admitted.read(last, metadata.place);
            bit<32> waiting = last[31:0] - metadata.departed[31:0];
            if (waiting >= ecn_threshold) {
                decide(last[79:32], waiting, limit);
            }
            if (policed == 1 && metadata.decision[1:1] == 0) {
                police();
            }
            metadata.cell = metadata.place[29:0] ++ metadata.decision;
            decisions.count(metadata.cell);
            if (metadata.decision[1:1] == 1) {
                mark_to_drop(standard_metadata);
            } else {
                if (metadata.decision == FORWARDED_MARKED) {
                    mark();
                }
                enqueue(last[31:0]);
            }
        }
    }

    action set_limit(bit<32> limit, bit<1> policed, bit<32> frame_bytes) {
        admit(limit, limit, policed, frame_bytes);
    }

    @action_restriction("ecn_threshold <= limit")
    action set_threshold_and_limit(
            bit<32> ecn_threshold, bit<32> limit, bit<1> policed, bit<32> frame_bytes) {
        admit(ecn_threshold, limit, policed, frame_bytes);
    }

    action no_queue() {
        REFUSE(REFUSED_NO_QUEUE);
    }

    @id(0x02000006)
    table queues {
        key = {
            metadata.port: exact @name("port") @refers_to(neighbours, port);
            metadata.queue: exact @name("queue");
        }
        actions = {
            set_limit;
            set_threshold_and_limit;
            @defaultonly no_queue;
        }
        const default_action = no_queue();
        size = PLACES;
    }

    apply {
        queues.apply();
    }
}
