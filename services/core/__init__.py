"""The rules, and nothing else: values in, values out. No clock, no randomness, no I/O, no logging.

One folder per family of aggregates, the same files in each: state.py (and evolve.py, where it is long), decide.py,
react.py, limits.py. Time and ids arrive inside the command. Same log in, same events out, always.
"""
