"""The domain rules as pure functions of values. No clock, no randomness, no I/O, no logging.

One folder per family of aggregates, the same files in each: state.py (and evolve.py, where it is long), decide.py,
react.py, limits.py. Time and ids are part of the command. The same log always produces the same events.
"""
