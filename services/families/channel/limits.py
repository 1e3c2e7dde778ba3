"""Bounds of queues. Operators may set lower ones for values and waits (settings CHANNELS_*)."""

DAY_MS = 86_400_000
VALUE_BYTES_DEFAULT = 64 * 1024
"""Bytes of the JSON text of a value; the setting CHANNELS_MAX_VALUE_BYTES replaces it up to VALUE_BYTES_MAX."""
VALUE_BYTES_MAX = 256 * 1024
"""What a record can hold, encrypted and with everything else in it."""
NAME_CHARACTERS_MAX = 256
"""Characters of the name of a channel, and of a user or an agent."""
CHANNELS_MAX = 32
"""Channels of one await or broadcast."""
WAIT_ASKED_MS_MAX = 24 * 3_600_000
"""Longest wait that may be asked for; the cap of the installation applies."""
CURSOR_CHARACTERS_MAX = 200
USER_ID_CHARACTERS_MAX = 256
READ, READ_MAX = 10, 100
"""Messages of one read."""
LEASED_MAX = 1_000
"""Messages of a queue that are leased."""
WAITING_MAX = 1_000
"""Calls that wait for messages of a queue, or await them."""
DECISION_BYTES = 450_000
"""Bytes of the events that one message may cause by waking all of them; the loop has 850,000 for a decision."""
EVENT_BYTES = 300
"""Bytes of such an event without the names in it."""
ATTEMPT_MAX = 999_999
"""A message that is given more often keeps this number."""
DELAYED_MAX = 5_000
"""Messages of a queue that are not yet visible."""
READERS_MAX = 1_000
"""Readers of a queue that have a cursor of their own."""
READER_CHARACTERS_MAX = 64
AGE_MS = 30 * DAY_MS
"""How long a message is kept after it has become visible, whatever its TTL is."""
DELAY_MS_MAX = 30 * DAY_MS
"""How far ahead a message may be published."""
TTL_MS_MAX = 100 * 366 * DAY_MS
"""A hundred years."""
WAIT_MS_MAX = 3_600_000
"""Longest wait of a call; the setting CHANNELS_LONGPOLL_CAP_MS is far below."""
REMIND_MS = 30_000
"""How often a run is asked whether it has taken the messages of a lease."""
REQUEST_LEASE_MS = 60_000
"""When the messages of a request that did not settle its lease are visible again."""
ENTRIES_BYTES_MAX = 560_000
"""Bytes of the delayed, leased and waiting entries, and of the readers, in the state of a queue."""
SURFACED_MAX = 100
"""Messages of one MessagesSurfaced: each is a row, and an event has at most ITEMS_MAX (services/core/families.py)."""
DROPPED_ROWS_MAX = 150
"""Rows that one MessagesDropped removes; those of more messages expire."""
