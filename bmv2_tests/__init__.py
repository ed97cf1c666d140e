"""Data-plane tests: packets through the P4 switch. Only here and in tests is scapy (GPL-2.0) imported."""
