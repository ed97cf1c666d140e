"""One command each: `python -m benchmarks.NAME [--quick] [--json]`; JSON is one flat object of figures."""
