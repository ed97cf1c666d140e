"""Linux as a switch: prio, red and flower by tc, routes by ip."""

from mltswitch.targets.linux.target import LinuxTarget

TARGET = LinuxTarget()
