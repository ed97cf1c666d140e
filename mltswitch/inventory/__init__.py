"""The devices of a rack, from an Ansible-style inventory."""

from mltswitch.inventory.device import Device, Inventory
from mltswitch.inventory.load import load_inventory

__all__ = ["Device", "Inventory", "load_inventory"]
