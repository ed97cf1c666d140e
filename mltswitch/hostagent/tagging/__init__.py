"""Which class and which importance packets have."""
