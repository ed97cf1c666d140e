"""The live page, its metrics, and what agents tell."""
