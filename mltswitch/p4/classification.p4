// Whom to believe, and which queue a packet joins: its DSCP says it where the port it came by is trusted, else it
// goes last.

// Ports with the same code points share a map, so a plan changes with one entry for each port. Map 0 is the
// one of ports that are not trusted.
control Trust(inout metadata_t metadata, inout standard_metadata_t standard_metadata) {
    action trust(bit<8> dscp_map) {
        metadata.map = dscp_map;
    }

    table trusted_ports {
        key = { standard_metadata.ingress_port: exact @name("port"); }
        actions = { trust; @defaultonly NoAction; }
        const default_action = NoAction();
        size = PORTS;
    }

    apply {
        trusted_ports.apply();
    }
}

control Classification(
        inout headers_t headers,
        inout metadata_t metadata,
        inout standard_metadata_t standard_metadata) {
    action set_queue(queue_t queue) {
        metadata.queue = queue;
    }

    // Map 0 has no entries: packets of untrusted ports, and code points that no class has, go last.
    table dscp_queues {
        key = {
            metadata.map: exact @name("map");
            metadata.dscp: exact @name("dscp");
        }
        actions = { set_queue; @defaultonly NoAction; }
        const default_action = NoAction();
        size = DSCP_ENTRIES;
    }

    apply {
        metadata.queue = BACKGROUND_QUEUE;
        dscp_queues.apply();
    }
}
