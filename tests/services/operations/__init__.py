"""The table of operations: what holds for every one of them, whichever family declares it."""
