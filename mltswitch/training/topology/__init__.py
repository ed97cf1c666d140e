"""The topologies, one module each, which decide who sends gradients to whom and who adds them."""
