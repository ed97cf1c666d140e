"""The synchronizations, one module each, which decide when gradients are exchanged and applied."""
