"""Exports a plan for sites that deploy with tools of their own."""

from mltswitch.export.ansible import Export, ansible_files

__all__ = ["Export", "ansible_files"]
