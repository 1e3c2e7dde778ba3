"""Words about acts, which operators and administrators do: how they end, and how long their names are.

Before: services/application/acts.py records acts. After: services/families/act decides and folds them.
"""

DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"
NAME_CHARACTERS_MAX = 256
"""Characters of the target, the caller and the other names of an act; what makes acts cuts longer ones."""
