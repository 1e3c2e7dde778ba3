"""Bounds of entries. Operators may set lower or higher ones for values and scopes (settings MEMORY_MAX_*)."""

KEY_CHARACTERS_MAX = 512
VALUE_BYTES_DEFAULT = 64 * 1024
"""Bytes of the JSON text of a value; the setting MEMORY_MAX_VALUE_BYTES replaces it up to VALUE_BYTES_MAX."""
VALUE_BYTES_MAX = 256 * 1024
"""What a record can hold, encrypted and with everything else in it."""
SCOPE_BYTES_DEFAULT = 1024 * 1024
"""Bytes of all values of a scope; the setting MEMORY_MAX_SCOPE_BYTES or the quota of an agent replaces it."""
NO_QUOTA = -1
KEYS_MAX = 10_000
NAMES_BYTES_MAX = 560_000
"""Bytes of the names of a scope's keys with ENTRY_BYTES for each: all of them are in the state of the scope."""
ENTRY_BYTES = 48
LIST_DEFAULT, LIST_MAX = 100, 1_000
BOUNDED_LIST_MAX = 10_000
TTL_MS_MAX = 100 * 366 * 86_400_000
"""A hundred years."""
SWEEP_MS = 15 * 60_000
"""Expired keys are hidden at once; they are removed at the next multiple of this."""
KEYS_PER_EVENT = 90
"""Keys of one event that removes several: each gives two rows."""
USAGE_NOTICE_SHARE = 0.8
"""From this share of its quota on, a write tells that a scope is nearly full."""
