"""Networks as graphs, the trees that tensors take through them, and how long that takes."""
