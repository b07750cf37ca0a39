"""One file for each kind of key: gather, decide, act, report."""
