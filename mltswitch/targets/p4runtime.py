"""The words of a P4Runtime session: what a target asks and sends, and what it is answered.

Lines for tables and meters are commands of BMv2's own command line, simple_switch_CLI.
"""

from typing import Final

PIPELINE: Final = "pipeline"
"""Asks which program runs; the answer is OUR_PROGRAM, NO_PROGRAM, or what is known of another one."""
ENTRIES: Final = "entries"
"""Asks for the entries of all tables, a `table_add` line each; empty unless our program runs."""
METERS: Final = "meters"
"""Asks for the meters that have rates, a `meter_set_rates` line each; empty unless our program runs."""
COUNTERS: Final = "counters"
"""Asks for the counters of all queues: a JSON object, `port queue` → counter → packets; empty as above."""
PRIORITY_QUEUES: Final = "priority_queues"
"""Asks by thrift how many queues a port has; the answer is a number, and a line `PORT MTU` for each port of
which that is known, or why nobody can tell; UNKNOWN_MTUS and why, where the number alone is known."""
UNKNOWN_MTUS: Final = "unknown MTUs: "
OUR_PROGRAM: Final = "mltswitch"
NO_PROGRAM: Final = "none"

LOAD_PROGRAM: Final = "load_program"
"""Replaces whatever program runs, with all its tables, by the one that mltswitch ships."""
BECOME_PRIMARY: Final = "become_primary"
"""Keeps every other controller from writing, as long as the session is open (P4Runtime, client arbitration).

What an earlier primary was writing is done when the next read is answered: PI lets no read begin beside a
write (p4lang/PI, proto/frontend/src/access_arbitration.h)."""
SET_QUEUE_DEPTH: Final = "set_queue_depth"
"""Begins the one line that P4Runtime has no words for; it also takes away rates that bound the queues."""
