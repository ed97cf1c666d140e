// SPDX-License-Identifier: Apache-2.0
// Whom to believe, and which queue a packet joins. What a port may not say is background from here on, on every
// hop: its code point is rewritten.

control Trust(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    action set_queue(queue_t queue) {
        metadata.queue = queue;
    }

    action set_dscp(bit<6> dscp) {
        SET_TRAFFIC_CLASS_BITS(dscp, dscp, 2);
    }

    action set_queue_and_dscp(queue_t queue, bit<6> dscp) {
        metadata.queue = queue;
        set_dscp(dscp);
    }

    // Code points that a port is believed. Whatever it says else goes last.
    @id(0x02000001)
    table classes {
        key = {
            standard_metadata.ingress_port: exact @name("port");
            headers.ethernet.destination: exact @name("address");
            metadata.dscp: exact @name("dscp");
        }
        actions = { set_queue; set_queue_and_dscp; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DSCP_ENTRIES;
    }

    action trust() {}

    action distrust(bit<6> dscp) {
        metadata.is_untrusted = 1;
        set_dscp(dscp);
    }

    // Frames for others, for groups (RFC 1812, section 5.3.4), and from ports that nobody has set up.
    action not_ours() {
        REFUSE(REFUSED_NOT_OURS);
    }

    @id(0x02000002)
    table ports {
        key = {
            standard_metadata.ingress_port: exact @name("port");
            headers.ethernet.destination: exact @name("address");
        }
        actions = { trust; distrust; @defaultonly not_ours; }
        const default_action = not_ours();
        size = PORTS;
    }

    apply {
        if (!classes.apply().hit) {
            ports.apply();
        }
    }
}
