"""The operator: resolves sources, places copies, grants reads, tells what is true."""
