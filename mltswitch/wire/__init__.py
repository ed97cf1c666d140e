"""Packet headers: one definition of each field that hosts, switches and tests share."""

from mltswitch.wire.tos import CS6, CS7, Dscp, Ecn, TrafficClassByte

__all__ = ["CS6", "CS7", "Dscp", "Ecn", "TrafficClassByte"]
