"""Who sends to whom: one module for each topology."""
