"""The engine of all targets with command lines: each OS is a sheet of lines, from which the rest follows.

A device's configuration is a map of facts: port → (what, *place) → value. A sheet says of each line which
fact it sets; one mapping an OS turns facts into a SwitchState and back. Rendering, strict parsing, the
change of a push and its rollback are the same code for all.
"""
