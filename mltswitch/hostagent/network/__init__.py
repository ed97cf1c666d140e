"""Datagrams in and out, many per system call: sockets, what the kernel offers, receivers and senders."""
