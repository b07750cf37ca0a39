"""Pure decisions over observed values; each returns what and why."""
