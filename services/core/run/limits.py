"""Bounds of a run, each with its reason. Parity: reference runtime 1.5, 1.8, 1.11, 1.12."""

MAX_ITERATIONS_DEFAULT = 16
"""Model turns of a run whose definition sets none; stops a model that only calls tools."""
ITERATIONS_BACKSTOP = 1 << 20
"""Bound of runs without a bound, so that no loop is endless."""
MAX_TOOL_CALLS_PER_TURN = 128
"""Calls of one turn that are carried out; the rest get an error result. A turn must fit one append and 256 frames."""
MAX_WAITING_INPUTS = 16
"""User texts that wait for the next turn boundary; more are refused, so that a client cannot fill memory."""
CLOSED_QUESTIONS_KEPT = 64
"""Questions to people that a run remembers once they have ended, for whoever answers too late; others are in the read
models. About 5 KB of state."""
INPUT_IDS_KEPT = 128
"""Ids of texts a run remembers: one that is sent again comes within seconds, or is read again by a new owner from where
the last checkpoint stands (half a minute). About 5 KB of state."""
RETRY_ATTEMPTS_MAX = 5
"""Most retries a definition may ask for."""
RETRY_BACKOFF_MS = (100, 300, 900, 2_700, 8_100)
"""Wait before each retry on the same provider."""
FALLBACKS_DEFAULT = 3
"""Switches of a run whose definition sets no number; each costs a conversation its cache and its reasoning."""
FALLBACK_CAUSE_MAX = 200
"""Characters of the error that a fallback shows as its cause (parity)."""
RATE_LIMIT_ATTEMPTS = 5
"""Calls answered by 429 before the turn fails."""
RATE_LIMIT_BACKOFF_MS = (10_000, 20_000, 40_000, 60_000, 120_000)
"""Wait after a 429 that names none."""
RETRY_WAIT_MAX_MS = 5 * 60_000
"""All waits of one turn together, for rate limits and for whatever else a provider asks to be waited for; a longer one
fails the turn, because the caller has better uses for five minutes."""
LOST_ATTEMPTS_MAX = 20
"""Attempts of one call lost to dying owners before it fails: a call that kills its process must not do so for ever."""
LOSSES_MAX = 10
"""Owners that may be lost while a tool call of one run is under way, until the run is quarantined: a tool that ends its
process must not do so for ever, whatever the model asks for next. Less than INTERRUPTIONS_MAX, so that the runs that
only happen to share the process are still there afterwards."""
QUARANTINE_REASON_MAX = 4_000
"""Characters of why a run is quarantined."""
PAUSE_REASON_MAX = 500
"""Characters of the reason of a pause; it is shown in lists."""
ERROR_TEXT_MAX = 4_000
"""Characters of an error text that are kept; providers sometimes answer with whole pages."""
RECONCILES_MAX = 5
"""Questions to a tool about one call, over all its attempts; a reconciler that never answers must not hold a run."""
RECONCILE_BACKOFF_MS = (500, 1_000, 2_000, 4_000, 8_000)
"""Wait before the next question after one that failed; together shorter than the patience of somebody who watches."""
MAX_PENDING_QUESTIONS = 10
"""Questions of one run that may wait at once where nothing else is said: what a person can still overlook."""
QUESTION_TIMEOUT_MS = 3_600_000
"""How long a question waits that names no time."""
QUESTION_TIMEOUT_MAX_MS = 24 * 3_600_000
"""Longest wait a question may ask for: a day; who needs longer parks the run."""
QUESTION_CHARACTERS_MAX = 8_000
"""Of a question or a notice; a person has to read it."""
CONTEXT_CHARACTERS_MAX = 32_000
"""Of what a person should know to answer; longer material belongs in a document."""
OPTIONS_MAX = 20
"""Answers to choose from; more cannot be taken in at a glance."""
OPTION_CHARACTERS_MAX = 500
"""Of one of them."""
ANSWER_CHARACTERS_MAX = 64_000
"""Of an answer; it stands in two events of one decision, and goes to the model as it is."""
RESOLVED_BY_MAX = 256
"""Characters of the name of whoever answers."""
DEPTH_MAX = 3
"""How deep a tree of runs may get, a run of its own being 0 (parity: reference runtime 3.4): more is a loop of agents
that ask each other."""
SPAWNS_MAX = 32
"""Children of one call."""
SPAWN_BYTES_MAX = 256 * 1024
"""All prompts of one call: they must fit one append together with what else is decided."""
RESIDENTS_MAX = 8
"""Resident children a run may have at once, unless the operator says otherwise."""
CANCEL_TURN_WAIT_MS = 15_000
"""How long a call waits until a resident child whose turn it cancelled stands still."""
INLINE_RESULT_BYTES = 60_000
"""Longer results of children are put together outside the core, because they belong in the blob store."""
COMPACTION_MESSAGES_MIN = 4
"""Messages below which nothing is compacted (parity)."""
TARGET_PCT, AUTO_PCT = (10, 50), (50, 95)
"""Percent that may be asked for: size of a summary, and fill of the window at which it is made (parity)."""
KEEP_LAST_MAX = 1_000
"""Messages that may be asked to stay; more would only say that nothing is to be compacted."""
COMPACTION_TAIL_PCT = 50
"""Of the context window: what is kept as it was, at most. The rest is for the summary and for what comes (parity)."""
COMPACTION_LOSSES_MAX = 3
"""Owners that may be lost during one summary call; then the run goes on without it."""
CHARACTERS_PER_TOKEN = 4
"""For estimates: of what came since a provider counted last, and of all of it when it counts nothing (parity)."""
IMAGE_TOKENS = 1_600
"""Estimate for an image: what a large one costs at the providers that say so."""
SUMMARY_CHARACTERS_MAX = 60_000
"""Characters of a summary that are kept; encrypted and in UTF-8 it still fits one event."""
SUMMARY_TOKENS_MIN, SUMMARY_TOKENS_MAX = 512, 16_000
"""Bounds of the answer that a summary call may give: a summary of little still needs its sentences."""
SUMMARY_BLOCK_CHARACTERS_MAX = 16_000
"""Characters of one text that a summary call reads, half from its beginning and half from its end: a summary needs no
more of a large result, and the call must fit a smaller model too."""
