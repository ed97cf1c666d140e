"""Dell Enterprise SONiC, and Broadcom's, whose command line is the same: klish, started by `sonic-cli`."""

from mltswitch.targets.dell_sonic.target import DellSonicTarget

TARGET = DellSonicTarget()
