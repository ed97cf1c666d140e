"""Community SONiC: a JSON document merged into CONFIG_DB by its configuration updater."""

from mltswitch.targets.sonic.target import SonicTarget

TARGET = SonicTarget()
