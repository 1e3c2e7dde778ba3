"""Feed of the changes of memory, in a schema of its own.

Before: services/projector/memory_feed.py. After: changes.py writes, reads.py reads, tables.py is for both.
"""
