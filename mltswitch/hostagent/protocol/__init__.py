"""What two agents say to each other on the control channel, without any I/O."""
