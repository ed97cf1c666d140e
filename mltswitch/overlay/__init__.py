"""Networks as graphs, the trees along which a job exchanges tensors, and simulations of their time."""
