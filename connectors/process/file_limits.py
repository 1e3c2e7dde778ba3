"""How many files a process may have open: every stream, every connection and every segment of a log is one.

Systems start processes with a low soft bound (often 1,024) under a much higher hard one. A process that serves
thousands of streams raises its own soft bound; the hard one only an administrator can raise, so whoever needs more is
told.

Before: a main. After: nothing.
"""

import resource


def raise_open_file_limit(limit: int) -> int:
    """Raises the soft bound of this process and of children it starts, up to `wanted`; the bound now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return limit
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(soft, allowed)
