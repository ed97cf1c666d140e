"""The compiled data plane: all work for each packet and each transfer, in C, in one thread."""
