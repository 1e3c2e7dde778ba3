"""The common part of every accepted run, in whatever state: its identity, its conversation, its usage.

The conversation is kept ready for the next model call. The functions here return changed copies.

Before: RunStarted, for most of it. After: state.py, whose live states contain them.
"""

from loomlog.schemas.conversation import Message
from loomlog.schemas.generated.run_events import InputReceived
from loomlog.schemas.generated.values import (
    AgentDefinition,
    BlobRef,
    ImportOrigin,
    MeterAmount,
    ModelChoice,
    ParentCall,
    ResultDetails,
    RunOptions,
    SkillPin,
    ToolListPin,
    TreeTotal,
    Usage,
)
from loomlog.schemas.ids import command_identity
from loomlog.schemas.records import Value, replace
from loomlog.services.core.run import limits
from loomlog.services.core.run.interrupts.questions import ClosedQuestion

NO_USAGE = Usage()
FOREIGN = "imported"
"""First word of the `import_identity` of a run that was not restored: the author of its file is unknown."""


class Pause(Value, frozen=True, kw_only=True):
    """A pause that holds a run. `scope` is run, agent, tenant or all; a run has at most one of each."""

    scope: str
    reason: str
    by: str


class Losses(Value, frozen=True, kw_only=True):
    """Owners lost while a tool call of the run was under way, since it started or was released.

    Calls lost together are recorded with one decision, at one time: they count once.
    """

    count: int = 0
    at_ms: int = -1
    """Time of the last loss; -1 for none."""


NO_LOSSES = Losses()


class TakenLease(Value, frozen=True, kw_only=True):
    """A lease of a queue whose first `taken` messages a call has returned."""

    lease_id: str
    taken: int


class ContextGauge(Value, frozen=True, kw_only=True):
    """Fill of the context at the last count: tokens of the first `messages` of the conversation.

    Both 0: not counted yet.
    """

    tokens: int = 0
    messages: int = 0


EMPTY_GAUGE = ContextGauge()


class CompactionState(Value, frozen=True, kw_only=True):
    """Compactions of the run, failed ones included. `last_turn` is the turn before which the last one was requested."""

    count: int = 0
    last_turn: int = -1
    is_requested: bool = False
    """The run itself requested one before its next turn."""
    overflows: int = 0
    """Those that followed a call whose conversation was too long since the last answer: one for each turn."""


NO_COMPACTIONS = CompactionState()


class RunFacts(Value, frozen=True, kw_only=True):
    """Common part of every accepted run. Times in UTC milliseconds, cost in millionths of `currency`."""

    run_id: str
    session_id: str
    agent_id: str
    subject: str
    user_id: str
    options: RunOptions
    definition: AgentDefinition
    system: tuple[str | BlobRef, ...]
    cache_marks: tuple[int, ...]
    """Indexes of the system texts that a provider may cache up to."""
    messages: tuple[Message, ...]
    idempotency_key: str
    request_sha256: str
    started_at_ms: int
    traceparent: str
    inherited_messages: int = 0
    """Number of messages that came from the run this one continues."""
    turns: int = 0
    """Model turns that were answered or cancelled."""
    is_turn_over: bool = False
    """The last of these turns requested nothing, or was cancelled: results of its calls have no follow-up."""
    usage: Usage = NO_USAGE
    last_usage: Usage = NO_USAGE
    max_context_tokens: int = 0
    cost_micros: int = 0
    currency: str = ""
    model_errors: int = 0
    waiting_inputs: tuple[str | BlobRef, ...] = ()
    """User texts that join the conversation at the next turn boundary."""
    input_ids: tuple[str, ...] = ()
    """Command ids of the latest texts, newest last, to recognise retries."""
    quarantine_error: str = ""
    imported_events: int = 0
    """Number of its events that happened elsewhere; 0 for a run of this log, and for a restored one that continues."""
    imported_as: str = ""
    """While there are imported events: `import_identity` of their source. Parts of any other source are refused."""
    pauses: tuple[Pause, ...] = ()
    """Pauses that hold the run, in the order of the requests."""
    losses: Losses = NO_LOSSES
    context: ContextGauge = EMPTY_GAUGE
    compactions: CompactionState = NO_COMPACTIONS
    seed: str = ""
    """Not empty: the run only holds a conversation for runs that continue it."""
    reported_limits: tuple[str, ...] = ()
    """Budget limits that were reported, each scope/severity once."""
    choice: ModelChoice | None = None
    """The model it has switched to; None: that of its definition."""
    switches: int = 0
    retries: int = 0
    """Iterations used by retries and fallbacks: they answered no turn."""

    deadline_ms: int = 0
    """Time at which the run times out, unless it pauses or waits for people before; 0: never."""
    closed_questions: tuple[ClosedQuestion, ...] = ()
    """Its latest ended questions to people, newest last."""
    parent: ParentCall | None = None
    """The call that started it; None for a root."""
    spawned: int = 0
    """Number of children it has started."""
    residents: tuple[str, ...] = ()
    """Run ids of its live resident children."""
    positions: tuple[str, ...] = ()
    """Position tokens of what it wrote to other aggregates, the newest of each partition, newest last."""
    skill_pins: tuple[SkillPin, ...] = ()
    """Versions of skills that it keeps to since their first use, one for each name."""
    tool_lists: tuple[ToolListPin, ...] = ()
    """Lists of MCP servers whose tools its model was shown last."""
    rejected_outputs: int = 0
    """Final answers that did not meet the output schema."""
    leases: tuple[TakenLease, ...] = ()
    """What its calls took from queues, newest last, to answer a queue that asks again."""
    totals: tuple[MeterAmount, ...] = ()
    """Counts and sums of its permitted calls that its rules read, by meter."""
    tree: tuple[TreeTotal, ...] = ()
    """Counts and sums over the tree, by meter: the run's own part, and in a root the parts of all runs below it too."""
    tree_spent_micros: int = 0
    """What the runs below a root have cost, where rules read that."""

    def find_input(self, input_id: str) -> str:
        """Return the id of the text that was received under that id, whatever its body was; empty for a new one."""
        identity = command_identity(input_id)
        return next((one for one in self.input_ids if command_identity(one) == identity), "")

    @property
    def current_model(self) -> ModelChoice:
        """The model the run uses now."""
        if self.choice is not None:
            return self.choice
        definition = self.definition
        return ModelChoice(provider=definition.provider, model=definition.model, effort=definition.effort)


def without_resident(facts: RunFacts, run_id: str) -> RunFacts:
    if run_id not in facts.residents:
        return facts
    return replace(facts, residents=tuple(name for name in facts.residents if name != run_id))


def with_positions(facts: RunFacts, written: tuple[str, ...]) -> RunFacts:
    """Return the facts with the positions of a call's writes: later reads of the run wait for them.

    Those of an imported run are of another log, and are not waited for.
    """
    if not written or facts.imported_as:
        return facts
    newest = {_partition_of(token): token for token in facts.positions}
    for token in written:
        partition = _partition_of(token)
        if partition in newest and _offset_of(newest[partition]) > _offset_of(token):
            continue
        newest.pop(partition, None)  # to the end
        newest[partition] = token
    return replace(facts, positions=tuple(newest.values())[-limits.POSITIONS_KEPT :])


def with_details(facts: RunFacts, details: ResultDetails) -> RunFacts:
    """Return the facts with what a call means for the run besides its result."""
    if details.asks_compaction:
        facts = with_compaction_requested(facts, is_requested=True)
    if details.skill_pin is not None:
        facts = with_skill_pin(facts, details.skill_pin)
    if details.leases:
        taken = tuple([TakenLease(lease_id=lease.lease_id, taken=lease.taken) for lease in details.leases])
        facts = replace(facts, leases=(*facts.leases, *taken)[-limits.LEASES_KEPT :])
    return with_positions(facts, details.positions)


def with_skill_pin(facts: RunFacts, pin: SkillPin) -> RunFacts:
    """Return the facts with the version of a skill that a call used; the first use of a name counts.

    A run imported from a file of unknown author pins nothing: its fork would keep to versions that the file names.
    """
    is_known = any(known.name == pin.name for known in facts.skill_pins)
    if is_known or len(facts.skill_pins) >= limits.SKILL_PINS_KEPT or facts.imported_as.startswith(FOREIGN):
        return facts
    return replace(facts, skill_pins=(*facts.skill_pins, pin))


def _partition_of(token: str) -> str:
    """Return topic and partition of a position token, `<topic>/<partition>:<offset>`."""
    return token.rpartition(":")[0]


def _offset_of(token: str) -> int:
    text = token.rpartition(":")[2]
    return int(text) if text.isascii() and text.isdecimal() else -1


def add_usage(one: Usage, other: Usage) -> Usage:
    """Return the sum of two usages."""
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cache_creation_input_tokens=one.cache_creation_input_tokens + other.cache_creation_input_tokens,
        cache_read_input_tokens=one.cache_read_input_tokens + other.cache_read_input_tokens,
    )


def import_identity(origin: ImportOrigin) -> str:
    """Return what all parts of one imported run share, in whichever file they came: import or restore, its length and
    how it ended.
    """
    return f"{'restored' if origin.restored else FOREIGN} {origin.events} {origin.tail_digest}"


def deadline(run_timeout_s: int, at_ms: int) -> int:
    return at_ms + 1000 * run_timeout_s if run_timeout_s else 0


def extend_deadline(facts: RunFacts, since_ms: int, at_ms: int) -> RunFacts:
    """Extend the deadline by the time since then, in which the run's clock was stopped."""
    if not facts.deadline_ms:
        return facts
    return replace(facts, deadline_ms=facts.deadline_ms + max(0, at_ms - since_ms))


def with_input(facts: RunFacts, event: InputReceived) -> RunFacts:
    ids = (*facts.input_ids, event.input_id)[-limits.INPUT_IDS_KEPT :] if event.input_id else facts.input_ids
    content = event.text if event.text_blob is None else event.text_blob
    return replace(facts, waiting_inputs=(*facts.waiting_inputs, content), input_ids=ids)


def with_compaction_requested(facts: RunFacts, *, is_requested: bool) -> RunFacts:
    return replace(facts, compactions=replace(facts.compactions, is_requested=is_requested))
