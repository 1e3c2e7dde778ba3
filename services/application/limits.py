"""Limits of the application layer, each with its reason. Limits of the core are in services/core/run/limits.py."""

# --- a request -------------------------------------------------------------------------------------------------------

SEGMENTS_MAX = 256
"""Maximum parts of one request; a longer chat belongs in a session."""
BLOCKS_MAX = 1_024
"""Maximum content blocks of one request, all segments together."""
INLINE_BYTES = 64 * 1024
"""A larger text or image goes to the blob store."""
COMMAND_BYTES_MAX = 600_000
"""A StartRun must fit one append together with the definition that its event repeats (the owner's limit is 620,000)."""
METADATA_BYTES_MAX = 64 * 1024
"""Metadata is part of the prompt and of the event."""
METADATA_KEYS_MAX = 128
PARENT_CONTEXT_VALUE_BYTES = 256
"""Parity: an opaque label, not a payload."""
NAMES_MAX = 512
"""Maximum tools or hosts of one narrowing list."""
NAME_BYTES_MAX = 256
"""Maximum length of a tool name, host or tier."""
STOP_STRINGS_MAX = 8
"""Maximum stop strings; providers take at most this many."""
INPUT_BYTES_MAX = 1024 * 1024
"""Maximum user text for a live run (parity: reference runtime 1.12). Over INLINE_BYTES it is stored
in the blob store.
"""
RESULT_BYTES_MAX = 512 * 1024
"""Maximum result of a call that a person provides; its event has it inline and must fit one append."""
ANSWER_BYTES_MAX = 256 * 1024
"""Maximum answer to a question; the core limits its characters."""
REASON_CHARACTERS_MAX = 4_000
"""Maximum reason of a cancel; what the core keeps."""
FILTER_CHARACTERS_MAX = 1_024
"""Maximum filter of a bulk command: eight short keys with their values."""
IDEMPOTENCY_KEY_MAX = 255
"""Maximum length of an Idempotency-Key: more than a UUID or two."""

CREDENTIALS_MAX = 64
"""Maximum credentials of one request; each is for another server the run calls."""
CREDENTIAL_CHARACTERS_MAX = 16 * 1024
"""Maximum length of a credential: more than the headers that servers accept."""
BATCH_SPAWNS_MAX = 32
"""Maximum runs of one batch (parity: reference surfaces 1.1)."""
BATCH_BYTES_MAX = 8 * 1024 * 1024
"""Maximum size of a batch request."""

# --- waits -----------------------------------------------------------------------------------------------------------

PUBLISH_WAIT_S = 5.0
"""Time a command waits for the broker's acknowledgement before the caller receives log_unavailable."""
PROBE_WAIT_S = 15.0
"""Time limit of a probe of all providers: a runtime allows each 10 s; missing ones are reported as such."""
PUBLISH_RETRY_S = 0.2
"""Pause before a batch with unknown outcome is appended again."""
PUBLISH_WAITING_MAX = 20_000
"""Maximum waiting commands; more are refused at once, so that memory is bounded while the broker is away."""
PUBLISH_WAITING_BYTES = 64 * 1024 * 1024
DECISION_WAIT_S = 10.0
"""Time a start waits for its owner: enough for another process to take over a dead owner's partition."""
DECISION_POLL_S = 0.25
"""Interval at which a start that may be a repetition checks whether the run exists; a repetition causes no event."""
CONTROL_WAIT_S = 5.0
"""Time an input or a cancel waits for its effect (parity: the cancel acknowledgement of the reference)."""
BATCH_WAIT_MS = 60 * 60_000
"""Maximum and default time a join waits for its runs."""
COMPACTION_WAIT_S = 120.0
"""Time a compaction waits for its summary, which is a whole model call; it continues after the caller's timeout."""
OWN_WRITES_WAIT_S = 0.5
"""Time a read of one resource waits for the projections to pass what this process has seen; then it reads anyway."""
SPENT_WAIT_S = 5.0
"""Time the first limit of an account waits until the read models have counted earlier spending."""
POSITION_WAIT_S = 2.0
"""Time a request with position tokens waits; then it returns not_yet."""
POSITIONS_MAX = 256
"""Maximum number of position tokens of one request: a restore returns one for each partition it wrote to."""
PROJECTION_WAIT_S = 5.0
"""Time limit of one read of the projections before the caller receives projection_unavailable."""

# --- the hub and the streams -----------------------------------------------------------------------------------------

POLL_S = 1.0
"""Longest wait of a poll without records."""
POLL_RECORDS_MAX = 2_000
"""Maximum records handled at once: a few milliseconds of the event loop."""
IDLE_POLL_PAUSE_S = 0.1
"""Pause between two polls while no single run is followed; the first that is ends it. A poll for each flush of a busy
log costs this process twice as much (0.36 against 0.16 ms a run of A3x2). Streams of the states of all runs are so
much late.
"""
RECENT_BYTES_MAX = 64 * 1024 * 1024
"""Maximum recent records kept for late subscribers, their bookkeeping included."""
RECENT_AGE_MAX_S = 600.0
"""Maximum age of recent records: who opens a run in the middle of a turn gets its previews from the beginning if the
turn is not older, and none until it ends if it is. As long as their topic keeps previews."""
PREVIEWS_READ_BACK_MAX = 50_000
"""Maximum previews that a process reads back when it starts, so that a turn under way goes on in its streams: half a
second of CPU.
"""
READ_BACK_WAIT_S = 5.0
"""Maximum wait of a stream for previews to be read back when the process starts."""
ITEM_OVERHEAD_BYTES = 410
"""Memory of a kept record besides its bytes (tracemalloc: tuple, numbers, list and queue entries)."""
QUEUE_ITEMS_MAX = 4_096
"""Maximum queued records of a slow subscriber before it is dropped; it then continues from the projections."""
QUEUE_BYTES_MAX = 8 * 1024 * 1024
GATHER_S = 0.05
"""Time after a write during which a stream batches, so at most 20 writes a second, which reads as continuous text; the
first output and an end are sent at once. Each write is a system call, together the largest part of a stream's cost.
"""
BUFFERED_PREVIEWS_MAX = 256
"""Maximum previews that wait for the event which opens their turn; it is milliseconds behind them,
so more are a fault.
"""
CATCH_UPS_MAX = 100
"""Times one stream may fall back to the projections before it is ended and the client has to reconnect."""
CATCH_UP_PAUSE_S = 0.2
"""Pause before a stream checks again whether the projections have the missing events."""
REPLAY_PAGE = 500
"""Stored frames read at a time."""

# --- lists and the audit view ----------------------------------------------------------------------------------------

LIST_DEFAULT = 50
LIST_MAX = 500
TRANSCRIPT_MAX = 5_000
EVENTS_DEFAULT = 100
EVENTS_MAX = 1_000
EVENTS_SCANNED_MAX = 20_000
"""Maximum records read for one page of the audit view; a shorter page has a cursor to continue from."""
EVENTS_WAITING_MAX = 8
"""Maximum audit requests waiting for the one range reader of this process; more are refused at once."""
TERM_SEARCH_MAX = 20_000
"""Maximum records read backwards to find the Claim that a range began under."""

# --- histories -------------------------------------------------------------------------------------------------------

EVENTS_FOLDED_MAX = 50_000
"""Maximum events of one run folded for one response: some seconds of this process. Longer runs are exported."""
IMPORT_FILE_BYTES_MAX = 256 * 1024 * 1024
"""Maximum size of an uploaded bundle."""
IMPORT_BYTES_MAX = 2 * 1024 * 1024 * 1024
"""Maximum uncompressed size: a small file from outside may decompress to this much."""
IMPORT_BATCH_BYTES = 400_000
"""Events of one ImportRun; with new envelopes they must still fit one append."""
IMPORT_EVENT_BYTES_MAX = COMMAND_BYTES_MAX - 10_000
"""Maximum single event, which must fit a command: checked for all of them before the first part is sent."""
BLOB_BYTES_MAX = 64 * 1024 * 1024
"""Maximum payload of a bundle; a request is smaller."""

# --- state files -----------------------------------------------------------------------------------------------------

STATE_FILE_BYTES_MAX = 16 * 1024 * 1024 * 1024
"""Default maximum size of a state file on disk or uploaded."""
STATE_BYTES_MAX = 256 * 1024 * 1024 * 1024
"""Maximum uncompressed size of a state file."""
CONCURRENT_RESTORES = 32
"""Runs of a state file restored concurrently; each holds at most one part (IMPORT_BATCH_BYTES) in memory."""
WARNINGS_MAX = 20
"""Maximum messages about single runs in one response."""
RUN_TIMEOUT_MAX_S = 365 * 24 * 3600
"""Maximum time limit that a request may set for a run; a longer one is a mistake in the unit."""
