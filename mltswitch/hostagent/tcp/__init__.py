"""The transport `tcp`: tensors whole and in order over TCP, what one would use without this project."""
