"""Limits of tokens, users, quotas and credentials, each with its reason."""

import re

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z", re.ASCII)
"""Names of tokens, tenants and subjects: they are parts of ids, file names and log lines."""
SHARDS = 256
"""Aggregates of a tenant: 100,000 users with a token each are some 400 of both in one, well below the largest state."""
TOKENS_MAX = 100_000
"""Tokens in force: every process has them in memory, some 1,000 bytes each."""
TOKENS_PER_USER_MAX = 20
ADMINISTRATORS_MAX = 500
"""Tokens of administrators in force: they are one aggregate, so that the last one is known to be so."""
RETIRED_KEPT_MAX = 20
"""Ended tokens of a name, or of a user, that are still listed; the log has all of them."""
SCOPES_MAX = 64
USERS_MAX = 100_000
"""Users of a tenant."""
GRACE_MS_MAX = 30 * 86_400_000
GRACE_S_DEFAULT = 86_400
"""How long the text before a rotation still gives access by default (parity: reference operations 1.1)."""
IMPORTED_CHARACTERS_MIN = 16
"""Shortest text that an operator may choose; the reference takes 8, which can be guessed."""
IMPORTED_CHARACTERS_MAX = 4_096
DISPLAY_NAME_CHARACTERS_MAX = 200
DISPLAY_NAME_BYTES_MAX = 4_000
"""The same encrypted."""
HASH = re.compile(r"[0-9a-f]{64}\Z")
DEF_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z", re.ASCII)
SUFFIX_CHARACTERS_MAX = 6
TIME_MAX_MS = 253_402_300_799_999
"""The end of the year 9999: the latest time that RFC 3339 writes."""
QUOTAS_MAX = 1_000
"""Entries of one shard."""
QUOTA_MAX = 2**53
USES_MAX = 100
"""Uses of one command."""
USES_KEPT_MAX = 20
"""Uses of a credential that are shown, by agent, user and purpose; the log has all that were noted."""
USE_CHARACTERS_MAX = 200
CREDENTIALS_PER_TENANT_MAX = 1_000
CREDENTIAL_BYTES_MAX = 16 * 1024
REFERENCE_BYTES_MAX = 1_024
STATE_BYTES_MAX = 500_000
"""Largest shard; below what one row holds, so that a token can always be retired."""
