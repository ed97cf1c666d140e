"""The protocol of two agents on the control channel, without any I/O."""
