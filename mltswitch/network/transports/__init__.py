"""How hosts send: compiled state machines, one module each, and their parameters as data."""
