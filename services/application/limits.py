"""Bounds of the command layer, each with its reason. What the core bounds is in services/core/run/limits.py."""

# --- a request -------------------------------------------------------------------------------------------------------

SEGMENTS_MAX = 256
"""Parts of one request; a chat that is longer belongs in a session."""
BLOCKS_MAX = 1_024
"""Content blocks of one request, all segments together."""
INLINE_BYTES = 64 * 1024
"""A text or image over this goes to the blob store."""
COMMAND_BYTES_MAX = 600_000
"""A StartRun must fit one append together with the definition its event repeats (the owner's bound is 620,000)."""
METADATA_BYTES_MAX = 64 * 1024
"""It is part of the prompt and of the event."""
METADATA_KEYS_MAX = 128
PARENT_CONTEXT_VALUE_BYTES = 256
"""Parity: an opaque label, not a payload."""
NAMES_MAX = 512
"""Tools or hosts of one narrowing list."""
NAME_BYTES_MAX = 256
"""One tool name, host or tier."""
STOP_STRINGS_MAX = 8
"""Stop strings; providers take at most this many."""
INPUT_BYTES_MAX = 1024 * 1024
"""One user text for a run under way (parity: reference runtime 1.12). Over INLINE_BYTES it lies in the blob store."""
RESULT_BYTES_MAX = 512 * 1024
"""What somebody says that a call gave; its event holds it inline and has to fit one append."""
ANSWER_BYTES_MAX = 256 * 1024
"""An answer to a question; the core bounds its characters."""
REASON_CHARACTERS_MAX = 4_000
"""Of a cancel; what the core keeps."""
FILTER_CHARACTERS_MAX = 1_024
"""Of the filter of an order in bulk: eight short keys with their values."""
IDEMPOTENCY_KEY_MAX = 255
"""Characters of an Idempotency-Key; more than a UUID or two."""

CREDENTIALS_MAX = 64
"""That come with one request; each is for another server the run talks to."""
CREDENTIAL_CHARACTERS_MAX = 16 * 1024
"""Of one of them: longer than the headers that servers accept."""
BATCH_SPAWNS_MAX = 32
"""Runs of one batch (parity: reference surfaces 1.1)."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""A batch as it is sent."""

# --- waits -----------------------------------------------------------------------------------------------------------

PUBLISH_WAIT_S = 5.0
"""How long a command waits for the broker's acknowledgement before the caller is told that the log is away."""
PROBE_WAIT_S = 15.0
"""How long a probe of all providers may take: a runtime gives each 10 s to answer, and a caller hears of the rest."""
PUBLISH_RETRY_S = 0.2
"""Pause before a batch of unknown outcome is appended again."""
PUBLISH_WAITING_MAX = 20_000
"""Commands that wait for the wire; more are refused at once, so that memory is bounded while the broker is away."""
PUBLISH_WAITING_BYTES = 64 * 1024 * 1024
DECISION_WAIT_S = 10.0
"""How long a start waits for its owner: long enough for another process to take a dead owner's partition over."""
DECISION_POLL_S = 0.25
"""How often a start that may be a repetition looks whether the run exists; a repetition causes no event."""
CONTROL_WAIT_S = 5.0
"""How long an input or a cancel waits for its effect (parity: the cancel acknowledgement of the reference)."""
BATCH_WAIT_MS = 60 * 60_000
"""The longest a join waits for its runs, and how long it waits when it names no time."""
COMPACTION_WAIT_S = 120.0
"""How long a compaction waits for its summary, which is a whole model call; it goes on when the caller is let go."""
OWN_WRITES_WAIT_S = 0.5
"""How long a read of one thing waits for the projections to pass what this process has seen; then it reads anyway."""
SPENT_WAIT_S = 5.0
"""How long a first limit of an account waits until the read models have counted what was spent before it."""
POSITION_WAIT_S = 2.0
"""How long a read with a position token waits; then it says not_yet."""
PROJECTION_WAIT_S = 5.0
"""How long one read of the projections may take before the caller is told that they are away."""

# --- the hub and the streams -----------------------------------------------------------------------------------------

POLL_S = 1.0
"""Longest wait of a poll without records."""
POLL_RECORDS_MAX = 2_000
"""Records handled in one go: a few milliseconds of the event loop."""
IDLE_POLL_PAUSE_S = 0.1
"""Rest between two polls while nobody subscribes; whoever subscribes ends it. A poll for each flush of a busy log costs
this process twice as much (0.36 against 0.16 ms a run of A3x2)."""
TAIL_RETRY_S = 1.0
"""Pause after a poll that the broker refused."""
RECENT_BYTES_MAX = 64 * 1024 * 1024
"""Recent records kept for those who subscribe late, their bookkeeping included."""
RECENT_AGE_MAX_S = 30.0
"""How long they are kept: a projection further behind than this is an incident of its own."""
ITEM_OVERHEAD_BYTES = 410
"""What a kept record costs besides its bytes (tracemalloc: tuple, numbers, list and queue entries)."""
QUEUE_ITEMS_MAX = 4_096
"""Records that wait for one slow subscriber before it is dropped; it then reads on from the projections."""
QUEUE_BYTES_MAX = 8 * 1024 * 1024
GATHER_S = 0.02
"""After a write a stream gathers this long before its next, about one picture of a screen; an end waits for nothing.
Each write is a system call, together the largest part of what a stream costs (30 % of the process before this)."""
BUFFERED_PREVIEWS_MAX = 256
"""Previews that wait for the event which opens their turn; it is behind them by milliseconds, so more are a fault."""
STREAMS_MAX = 10_000
"""Open event streams of one process; about 10 KiB each."""
CATCH_UPS_MAX = 100
"""Times one stream may fall back to the projections before it is ended and the client has to come again."""
CATCH_UP_PAUSE_S = 0.2
"""Pause before a stream looks again whether the projections have what it misses."""
REPLAY_PAGE = 500
"""Stored frames read at a time."""

# --- lists and the audit view ----------------------------------------------------------------------------------------

LIST_DEFAULT = 50
LIST_MAX = 500
TRANSCRIPT_MAX = 5_000
EVENTS_DEFAULT = 100
EVENTS_MAX = 1_000
EVENTS_SCANNED_MAX = 20_000
"""Records read for one page of the audit view; a page may come back short, with a place to go on from."""
EVENTS_WAITING_MAX = 8
"""Audit views that wait for the one range reader of this process; more are refused at once."""
TERM_SEARCH_MAX = 20_000
"""Records read backwards for the Claim that a range began under."""

# --- histories -------------------------------------------------------------------------------------------------------

HISTORIES_MAX = 8
"""Histories that are read, folded or sent at once by one process; each holds a run's conversation in memory."""
EVENTS_FOLDED_MAX = 50_000
"""Events of one run that are folded for one answer: some seconds of this process. Longer runs are exported."""
IMPORTS_MAX = 2
"""Imports under way at once in one process; each folds a whole run."""
IMPORT_FILE_BYTES_MAX = 256 * 1024 * 1024
"""A bundle as it is sent."""
IMPORT_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""Its lines together: what a small file of a stranger may unfold to."""
IMPORT_BATCH_BYTES = 400_000
"""Events of one ImportRun; with their envelopes written anew they must still fit one append."""
IMPORT_EVENT_BYTES_MAX = COMMAND_BYTES_MAX - 10_000
"""A single event, which must fit a command: known of all of them before the first part is sent."""
BLOB_BYTES_MAX = 64 * 1024 * 1024
"""One payload of a bundle; a request is smaller."""

# --- state files -----------------------------------------------------------------------------------------------------

STATE_FILE_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""A state file on disk, when nothing smaller is asked for; also of one that is sent."""
STATE_BYTES_MAX = 256 * 1024 * 1024 * 1024
"""Its lines together: what a small file may unfold to."""
CONCURRENT_RESTORES = 32
"""Runs of a state file that are told beside each other; each holds at most one part (IMPORT_PART_BYTES) in memory."""
WARNINGS_MAX = 20
"""Sentences about single runs in one answer."""
RUN_TIMEOUT_MAX_S = 365 * 24 * 3600
"""Longest time a request may give a run; a longer one is a mistake in the unit."""
