"""What tensors cost on this machine: two agents in two processes, over loopback, without privileges."""

from mltswitch.hostagent.bench.run import BenchResult, StreamResult, run_bench

__all__ = ["BenchResult", "StreamResult", "run_bench"]
