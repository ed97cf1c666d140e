"""One engine for command lines: a sheet of lines an OS, and what follows from it.

A device's configuration is a map of facts: port → (what, *place) → value. A sheet says of each line which
fact it sets; one mapping an OS turns facts into a SwitchState and back. Rendering, strict parsing, the change
of a push and the way back are the same code for all.
"""
