"""The transport `mlt` without input or output: bytes in, bytes out, and the time as an argument."""
