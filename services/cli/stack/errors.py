"""Errors of the local machine, for people.

Every message is a sentence with the attempted action, the value, what was expected and what to do, because it is all
that `loomlog up` prints before it exits.
"""


class StackError(Exception):
    """The local stack cannot do what was requested. str() is the sentence for people."""


class DiskFull(StackError):
    """The disk of the state folder is full. Everything else works, so it passes when space is freed."""


class StackAlreadyRunning(StackError):
    """Another supervisor holds this state folder."""
