"""BMv2's simple_switch with our own P4 program: table entries over P4Runtime."""

from mltswitch.targets.bmv2.target import Bmv2Target

TARGET = Bmv2Target()
