"""When gradients count: one module for each synchronization."""
