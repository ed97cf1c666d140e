"""The P4 program of a switch that does what MLT asks, and its control plane over P4Runtime."""
