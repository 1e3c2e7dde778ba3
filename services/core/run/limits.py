"""Limits of a run, each with its reason. Parity: reference runtime 1.5, 1.8, 1.11, 1.12."""

import re

AGENT_NAME = re.compile(r"(?=.{1,128}\Z)[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*\Z")
"""Names of agents."""
MAX_ITERATIONS_DEFAULT = 16
"""Model turns of a run whose definition sets none; stops a model that only calls tools."""
ITERATIONS_BACKSTOP = 1 << 20
"""Iterations of runs without a limit, so that no loop is endless."""
MAX_TOOL_CALLS_PER_TURN = 128
"""Calls of one turn that are executed; the rest get an error result. A turn must fit one append and 256 frames."""
MAX_WAITING_INPUTS = 16
"""User texts that wait for the next turn boundary; more are refused, so that a client cannot fill memory."""
CLOSED_QUESTIONS_KEPT = 64
"""Ended questions to people that a run remembers, for late answers; older ones are in the read models. About 5 KB of
state.
"""
INPUT_IDS_KEPT = 128
"""Ids of texts a run remembers: a repeated text arrives within seconds, or is read again by a new owner from the last
partition snapshot on (half a minute). About 5 KB of state.
"""
POSITIONS_KEPT = 64
"""Positions of writes to other aggregates that a run remembers, one for each partition of a topic: more than an
installation has partitions of entities. Older ones are long included in what reads see. About 3 KB of state.
"""
SKILL_PINS_KEPT = 64
"""Versions of skills that a run remembers; a run uses few. About 10 KB of state."""
DEFINITION_TEXT_INLINE_BYTES = 16 * 1024
"""Bytes of a prompt or script of a definition in an event; a longer one is in the blob store, because a definition is
the same for thousands of runs.
"""
RETRY_ATTEMPTS_MAX = 5
"""Most retries a definition may ask for."""
OUTPUT_RETRIES_DEFAULT = 2
"""Corrections of a final answer that does not meet the output schema; a model that needs more rarely succeeds."""
OUTPUT_RETRIES_MAX = 10
"""Most corrections that a definition or a request may ask for: each is a model turn."""
RETRY_BACKOFF_MS = (100, 300, 900, 2_700, 8_100)
"""Wait before each retry on the same provider."""
FALLBACKS_DEFAULT = 3
"""Fallbacks of a run whose definition sets no number; each costs a conversation its cache and its reasoning."""
FALLBACK_CAUSE_MAX = 200
"""Characters of the error that a fallback shows as its cause (parity)."""
RATE_LIMIT_ATTEMPTS = 5
"""Calls answered by 429 before the turn fails."""
RATE_LIMIT_BACKOFF_MS = (10_000, 20_000, 40_000, 60_000, 120_000)
"""Wait after a 429 without Retry-After."""
RETRY_WAIT_MAX_MS = 5 * 60_000
"""Sum of all waits of one turn, for rate limits and other delays a provider requests; a longer one fails the turn,
because the caller has better uses for five minutes.
"""
LOST_ATTEMPTS_MAX = 20
"""Attempts of one call lost with their owners before it fails: a call that kills its process must
not do so for ever.
"""
LOSSES_MAX = 10
"""Owners that may be lost while a tool call of one run is under way before the run is quarantined: a tool that kills
its process must not do so for ever, whatever the model requests next. Less than INTERRUPTIONS_MAX, so that other runs
of the same process survive.
"""
QUARANTINE_REASON_MAX = 4_000
"""Characters of a quarantine reason."""
PAUSE_REASON_MAX = 500
"""Characters of the reason of a pause; it is shown in lists."""
ERROR_TEXT_MAX = 4_000
"""Characters of an error text that are kept; providers sometimes answer with whole pages."""
RECONCILES_MAX = 5
"""Questions to a tool about one call, over all its attempts; a reconciler that never answers must not block a run."""
RECONCILE_BACKOFF_MS = (500, 1_000, 2_000, 4_000, 8_000)
"""Wait before the next question after one that failed; in total shorter than the patience of a person who watches."""
WAIT_GRACE_MS = 15_000
"""Milliseconds after the end of a wait for channels, or after a takeover that came later, in which the queue may
report; then the run ends the call itself. A queue whose owner is lost has the next one within this time.
"""
LEASES_KEPT = 200
"""Leases that a run remembers: a queue asks again every 30 s until it knows, and few calls fit into that time."""
QUESTION_CHARACTERS_MAX = 8_000
"""Characters of a question or a notice; a person has to read it."""
CONTEXT_CHARACTERS_MAX = 32_000
"""Characters of the context of a question; longer material belongs in a document."""
OPTIONS_MAX = 20
"""Options of a question; more cannot be overviewed."""
OPTION_CHARACTERS_MAX = 500
"""Characters of one option."""
ANSWER_CHARACTERS_MAX = 64_000
"""Characters of an answer; it is in two events of one decision, and goes to the model unchanged."""
RESOLVED_BY_MAX = 1_024
"""Maximum characters of the name of the person who answers, encrypted; the API takes 256 bytes."""
DEPTH_MAX = 3
"""Maximum depth of a tree of runs, a root being 0 (parity: reference runtime 3.4): more is a loop of agents that call
each other.
"""
SPAWNS_MAX = 32
"""Children of one call."""
SPAWN_BYTES_MAX = 256 * 1024
"""Bytes of all prompts of one call: they must fit one append together with the rest of the decision."""
CONCURRENT_CHILDREN_DEFAULT = 4
"""Children of one call that work at the same time when the definition sets no number (parity)."""
RESIDENTS_MAX = 8
"""Default limit of live resident children of a run."""
CANCEL_TURN_WAIT_MS = 15_000
"""Time a call waits for a resident child whose turn it cancelled to stop."""
INLINE_RESULT_BYTES = 60_000
"""Longer results of children are assembled outside the core, because they belong in the blob store."""
RESULT_WINDOW_PCT = 25
"""Percent of the model's window that one tool result takes, at most. An answer, the task and a few more results must
fit beside it, and what is estimated at four bytes a token may be twice as many (digits, base64).
"""
RESULTS_WINDOW_PCT = 50
"""The same for all results of a turn together: half of the window is left for what was before, which is compacted when
it needs more.
"""
RESULT_BYTES_MIN = 1_000
"""Bytes that a result may have in any case, however small the window and however many the calls: what failed, and
why.
"""
COMPACTION_MESSAGES_MIN = 4
"""Messages below which no conversation is compacted (parity), unless it is long."""
COMPACTION_TOKENS_MIN = 16_000
"""Estimated tokens from which a conversation of fewer messages is long: half of the smallest window in common use."""
TARGET_PCT, AUTO_PCT = (10, 50), (50, 95)
"""Accepted percentages: size of a summary, and fill of the window that triggers it (parity)."""
KEEP_LAST_MAX = 1_000
"""Messages that may be requested to stay; more would mean no compaction."""
COMPACTION_TAIL_PCT = 50
"""Percent of the context window that is kept unchanged, at most. The rest is for the summary and for what follows
(parity).
"""
COMPACTION_LOSSES_MAX = 3
"""Owners that may be lost during one summary call; then the run continues without it."""
CHARACTERS_PER_TOKEN = 4
"""For estimates: of what came after the provider's last count, and of all of it if it counts nothing (parity)."""
IMAGE_TOKENS = 1_600
"""Estimate for an image: the cost of a large one at the providers that publish it."""
SUMMARY_CHARACTERS_MAX = 60_000
"""Characters of a summary that are kept; encrypted and in UTF-8 it still fits one event."""
SUMMARY_TOKENS_MIN, SUMMARY_TOKENS_MAX = 512, 16_000
"""Limits of the answer of a summary call: a short summary still needs its sentences."""
SUMMARY_BLOCK_CHARACTERS_MAX = 16_000
"""Characters of one text that a summary call reads, half from its beginning and half from its end: a summary needs no
more of a large result, and the call must fit a smaller model too.
"""
