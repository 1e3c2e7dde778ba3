"""What can be wrong on this machine, said to people.

Every message is a sentence that says what was tried, with which value, what was expected and what to do about it,
because it is the whole of what `loomlog up` prints before it exits.
"""


class StackError(Exception):
    """The local stack cannot do what was asked. str() is the sentence for people."""


class DiskFull(StackError):
    """The disk of the state folder is full. Everything else is well, so it passes when somebody frees some space."""


class StackAlreadyRunning(StackError):
    """Another supervisor holds this state folder."""
