"""The queries and commands that a target sends in a P4Runtime session, and the answers to them.

Lines for tables and meters are commands of BMv2's own command line, simple_switch_CLI.
"""

from typing import Final

PIPELINE: Final = "pipeline"
"""Query for the program that runs; the answer is OUR_PROGRAM, NO_PROGRAM, or what is known of another one."""
ENTRIES: Final = "entries"
"""Query for the entries of all tables, a `table_add` line each; empty unless mltswitch's program runs."""
METERS: Final = "meters"
"""Query for the meters with rates, a `meter_set_rates` line each; empty unless mltswitch's program runs."""
COUNTERS: Final = "counters"
"""Query for the counters of all queues: a JSON object, `port queue` → counter → packets; empty unless
mltswitch's program runs."""
PRIORITY_QUEUES: Final = "priority_queues"
"""Query, over BMv2's thrift port, for the number of queues of a port.

The answer is the number, and a line `PORT MTU` for each port whose MTU is known, or why the number is
unknown; or the number, UNKNOWN_MTUS and why.
"""
UNKNOWN_MTUS: Final = "unknown MTUs: "
OUR_PROGRAM: Final = "mltswitch"
NO_PROGRAM: Final = "none"

LOAD_PROGRAM: Final = "load_program"
"""Command that replaces the running program and all its tables by the program that mltswitch ships."""
BECOME_PRIMARY: Final = "become_primary"
"""Command that keeps every other controller from writing while the session is open (P4Runtime arbitration).

Writes of an earlier primary are done when the next read is answered: PI lets no read begin beside a
write (p4lang/PI, proto/frontend/src/access_arbitration.h).
"""
SET_QUEUE_DEPTH: Final = "set_queue_depth"
"""First word of the one command that P4Runtime itself cannot express: it sets the depth of BMv2's queues, and
removes rates that bound them."""
