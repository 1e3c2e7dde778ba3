"""Raises the number of files a process may have open: every stream, connection and log segment is one.

Systems start processes with a low soft limit (often 1,024) below a much higher hard one. A process that serves
thousands of streams raises its own soft limit; only an administrator can raise the hard one, so a process that needs
more logs that.

Before: a main. After: nothing.
"""

import resource


def raise_open_file_limit(limit: int) -> int:
    """Raise the soft limit of this process and its future children, up to `limit`; return the limit in effect."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return limit
    allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    if allowed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(soft, allowed)
