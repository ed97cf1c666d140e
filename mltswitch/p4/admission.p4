// Selective dropping and marking before a packet is queued (MLT, section 5.2), by the bytes that wait.
//
// BMv2 tells how long a queue is only when a packet leaves it, so the number stands still while a starved queue
// grows. Here every admitted packet takes a ticket: the bytes ever admitted to its queue. A queue is first in,
// first out, so the ticket of the packet that left last says how many bytes have left, and what waits is the
// difference. A ticket heals what was lost: were a packet dropped by BMv2 itself, the next one to leave sets
// it right. And in a queue that was left empty after its last packet had come, and has been idle since, nothing
// waits, whatever the tickets say. Times are those of arrival, and BMv2 keeps packets a while before it looks at
// them, hence the pause; were one admitted later still, the next decision alone would overlook it.

register<bit<32>>(PLACES) admitted_bytes;
register<bit<32>>(PLACES) left_bytes;
register<bit<48>>(PLACES) admitted_at;  // microseconds: when the last packet that was admitted arrived
register<bit<48>>(PLACES) empty_at;  // and when a packet last left the queue empty

// arrived = forwarded_unmarked + forwarded_marked + dropped_unimportant + dropped_limit
counter(PLACES, CounterType.packets_and_bytes) arrived;
counter(PLACES, CounterType.packets_and_bytes) forwarded_unmarked;
counter(PLACES, CounterType.packets_and_bytes) forwarded_marked;
counter(PLACES, CounterType.packets_and_bytes) dropped_unimportant;
counter(PLACES, CounterType.packets_and_bytes) dropped_limit;

control Admission(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    bit<1> is_selective = 0;
    bit<32> ecn_threshold_bytes = 0;
    bit<32> limit_bytes = 0;
    bit<1> is_policed = 0;
    meter(PLACES, MeterType.bytes) policers;

    action set_limit(bit<32> limit, bit<1> policed) {
        limit_bytes = limit;
        is_policed = policed;
    }

    action set_threshold_and_limit(bit<32> ecn_threshold, bit<32> limit, bit<1> policed) {
        is_selective = 1;
        ecn_threshold_bytes = ecn_threshold;
        limit_bytes = limit;
        is_policed = policed;
    }

    action no_queue() {
        metadata.refusal = REFUSED_NO_QUEUE;
    }

    table queues {
        key = {
            metadata.port: exact @name("port");
            metadata.queue: exact @name("queue");
        }
        actions = { set_limit; set_threshold_and_limit; @defaultonly no_queue; }
        const default_action = no_queue();
        size = PLACES;
    }

    action drop_unimportant() {
        dropped_unimportant.count((bit<32>)metadata.place);
        mark_to_drop(standard_metadata);
    }

    action drop_limit() {
        dropped_limit.count((bit<32>)metadata.place);
        mark_to_drop(standard_metadata);
    }

    action mark() {
        headers.ipv4.ecn = CONGESTION_EXPERIENCED;
        headers.ipv6.ecn = CONGESTION_EXPERIENCED;
    }

    action enqueue(bit<32> admitted) {
        metadata.ticket = admitted + standard_metadata.packet_length;
        admitted_bytes.write((bit<32>)metadata.place, metadata.ticket);
        admitted_at.write((bit<32>)metadata.place, standard_metadata.ingress_global_timestamp);
        standard_metadata.egress_spec = metadata.port;
        standard_metadata.priority = metadata.queue;
    }

    apply {
        metadata.place = metadata.port ++ metadata.queue;
        if (queues.apply().hit) {
            bit<32> admitted;
            bit<32> left;
            bit<2> color = METER_GREEN;
            admitted_bytes.read(admitted, (bit<32>)metadata.place);
            left_bytes.read(left, (bit<32>)metadata.place);
            bit<48> last_admitted;
            bit<48> last_empty;
            admitted_at.read(last_admitted, (bit<32>)metadata.place);
            empty_at.read(last_empty, (bit<32>)metadata.place);
            bool is_idle = last_empty >= last_admitted
                && standard_metadata.ingress_global_timestamp >= last_empty + IDLE_MICROSECONDS;
            bit<32> waiting = is_idle ? 0 : admitted - left;
            arrived.count((bit<32>)metadata.place);
            if (is_policed == 1 && waiting < limit_bytes) {
                policers.execute_meter((bit<32>)metadata.place, color);
            }
            if (waiting >= limit_bytes || color != METER_GREEN) {
                drop_limit();
            } else if (is_selective == 0 || waiting < ecn_threshold_bytes) {
                forwarded_unmarked.count((bit<32>)metadata.place);
                enqueue(admitted);
            } else if (metadata.ecn == NOT_ECN_CAPABLE) {
                drop_unimportant();
            } else {
                forwarded_marked.count((bit<32>)metadata.place);
                mark();
                enqueue(admitted);
            }
        }
    }
}

// A packet left its queue: the other half of the count.
control Departure(inout metadata_t metadata, inout standard_metadata_t standard_metadata) {
    apply {
        left_bytes.write((bit<32>)metadata.place, metadata.ticket);
        if (standard_metadata.deq_qdepth == 0) {
            empty_at.write((bit<32>)metadata.place, standard_metadata.egress_global_timestamp);
        }
    }
}
