"""The family of channels: queues of messages between agents, applications and the world.

An aggregate is a queue: the messages of a channel in one scope. Its state has counters, cursors, leases and who waits;
messages are in the log and in rows.

    caller.py         who asks, for which queue
"""
