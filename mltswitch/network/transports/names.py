"""The transports by number, as compiled code knows them."""

NEWRENO, DCTCP, MLT = range(3)
