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
OUR_PROGRAM: Final = "mltswitch"
NO_PROGRAM: Final = "none"

LOAD_PROGRAM: Final = "load_program"
"""Replaces whatever program runs, with all its tables, by the one that mltswitch ships."""
SET_QUEUE_DEPTH: Final = "set_queue_depth"
"""Begins the one line that P4Runtime has no words for."""
