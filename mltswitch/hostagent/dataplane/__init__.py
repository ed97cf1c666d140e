"""The compiled data plane: everything that happens for each packet and each transfer, in C, in one thread."""
