"""The host agent: packs tensors into packets, tags, sprays and paces them, and tolerates a bounded loss."""
