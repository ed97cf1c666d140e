"""NVIDIA/Mellanox Onyx (MLNX-OS) 3.7-3.10: one-line commands over its command line."""

from mltswitch.targets.onyx.target import OnyxTarget

TARGET = OnyxTarget()
