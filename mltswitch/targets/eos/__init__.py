"""Arista EOS on Broadcom XGS chips (Trident, Tomahawk): a config session over its command line."""

from mltswitch.targets.eos.target import EosTarget

TARGET = EosTarget()
