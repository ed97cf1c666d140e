"""The P4 program of a switch that does what MLT asks, and its control plane over P4Runtime."""

import os

# gRPC's core reads it once, and writes to standard error what a user sees as one clear line anyway.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
