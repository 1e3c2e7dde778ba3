"""The subject whose key encrypts the pages of a database.

Pages hold rows of all its writers, and a file needs all of them. So the database of a user has the user's key and that
of a run the key of the run's user, while shared ones, of an agent or the tenant, have the tenant's own key: with the
key of one writer, the erasure of that writer would destroy the rows of all others.

Before: __init__.py, page_store.py. After: services/stream/encryption/subject_keys.py has the keys.
"""

from loomlog.services.families.memory.author import RUN, USER

TENANT_KEY = ""


def subject_of(scope: str, scope_id: str, writer: str) -> str:
    """Return the subject whose key encrypts the pages that `writer` has changed."""
    if scope == USER:
        return scope_id
    return writer if scope == RUN else TENANT_KEY
