"""The devices of a rack, from Ansible inventories."""

from mltswitch.inventory.device import Device, Inventory, JumpHost, Secret
from mltswitch.inventory.load import load_inventory

__all__ = ["Device", "Inventory", "JumpHost", "Secret", "load_inventory"]
