"""Forking a run: a new one that shares its events up to a seq, and may have another agent from there.

A caller that may read a run may fork it; the fork belongs to the same tenant and user. The user of an imported run is
unverified, so its fork belongs to the caller. The owner of the partition reads the prefix and decides whether the fork
point is valid; here only the request itself is checked. An unknown field is refused with the nearest existing one: a
misspelt override would silently change nothing.

Before: a transport. After: start.py launches it like any other run.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import orjson
from msgspec import field

from loomlog.connectors.configuration.findings import did_you_mean
from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.projections.runs import RunRow
from loomlog.schemas.generated.run_commands import ForkRun
from loomlog.schemas.generated.values import CommandEnvelope, DefinitionOverrides, Sampling, Segment
from loomlog.schemas.records import Record, Secretive, replace
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.application.queries.runs import RunQueries, owner_of
from loomlog.services.application.runs.requests import RunRequest, check_request, check_sampling
from loomlog.services.application.runs.run_ids import RunNames, fork_names
from loomlog.services.application.runs.start import RunStarts, StartAttempt, StartedRun
from loomlog.services.core.access.decide import Caller, RunIdentity, resolve_identity
from loomlog.services.core.run.limits import AGENT_NAME, ITERATIONS_BACKSTOP, RETRY_ATTEMPTS_MAX

EFFORTS = ("", "low", "medium", "high")
DEFINITION_TEXT_MAX = 64
"""Maximum length in characters: a SHA-256 in hex, or `current`."""
PLACEHOLDER = "x"
"""Replaces the text of a fork without one while the rest of its request is checked."""
TEXT_FIELDS = ("provider", "model", "effort", "system_prompt")
INTEGER_FIELDS = {"max_tokens": 2**31 - 1, "max_iterations": ITERATIONS_BACKSTOP, "retry_attempts": RETRY_ATTEMPTS_MAX}
"""Overrides that are whole numbers from 0 to this maximum."""
SAMPLING_FIELDS = Sampling.__struct_fields__
INTEGER_SAMPLING = ("top_k", "seed")
OVERRIDES = (*TEXT_FIELDS, "tools", *INTEGER_FIELDS, *SAMPLING_FIELDS)
"""Fields of the definition that a fork may change. Volumes and hosts are set by the operator only."""


class ForkRequest(Secretive, frozen=True, kw_only=True):
    """A fork as requested. Empty text and None mean unset."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"user_bearer", "user_credentials"})

    at_seq: int
    agent: str = ""
    definition: str = ""
    overrides: Mapping[str, Any] | None = None
    """Overrides by name, one of OVERRIDES."""
    prompt: str = ""
    segments: tuple[Segment, ...] = ()
    agent_id: str = ""
    interactive: bool | None = None
    idempotency_key: str = ""
    user_bearer: str = ""
    user_credentials: Mapping[str, str] = field(default_factory=dict)
    """Credentials of the fork; those of its origin are not inherited."""
    traceparent: str = ""


class Forks:
    """The use case. `clock_ms` and `fresh_token` supply time and randomness."""

    def __init__(
        self, runs: RunStarts, reads: RunQueries, *, clock_ms: Callable[[], int], fresh_token: Callable[[], str]
    ) -> None:
        self._runs = runs
        self._reads = reads
        self._clock_ms = clock_ms
        self._fresh_token = fresh_token

    async def fork(self, caller: Caller, run_id: str, request: ForkRequest) -> StartedRun:
        """Start a new run that shares the events 1 to at_seq.

        Raises Refused: not_found, content_erased, bad_fork_point, bad_request.
        """
        overrides = parse_overrides(request.overrides or {})
        plain = _check_request(request)
        row = await self._reads.run_to_continue(caller, run_id)
        if not 1 <= request.at_seq <= row.last_seq:
            raise bad_request(f"at is {request.at_seq}: {run_id} has the events 1 to {row.last_seq}")
        who = resolve_identity(caller, user_id="", session=owner_of(row))
        names = fork_names(
            fresh_token=self._fresh_token(),
            origin=run_id,
            tenant=who.tenant,
            subject=who.subject,
            agent_id=request.agent_id,
            idempotency_key=request.idempotency_key,
        )
        digest = _fork_digest(request, run_id) if request.idempotency_key else ""

        def command(whole: RunRequest) -> Record:
            return self._build_command(request, whole, row, who, names, overrides, digest)

        return await self._runs.launch(
            StartAttempt(caller=caller, request=plain, requester=who, names=names, digest=digest, make_command=command)
        )

    def _build_command(
        self,
        request: ForkRequest,
        stored_request: RunRequest,
        row: RunRow,
        requester: RunIdentity,
        names: RunNames,
        overrides: DefinitionOverrides | None,
        digest: str,
    ) -> ForkRun:
        return ForkRun(
            envelope=CommandEnvelope(
                # Each run id has one fork, so the run id is the command's id too.
                command_id=names.run_id,
                tenant=requester.tenant,
                subject=requester.subject,
                issued_at_ms=self._clock_ms(),
            ),
            origin_run_id=row.run_id,
            user_id=requester.user_id,
            at_seq=request.at_seq,
            run_id=names.run_id,
            agent_id=names.agent_id,
            agent=request.agent,
            definition=request.definition,
            overrides=overrides,
            segments=stored_request.segments,
            interactive=request.interactive,
            idempotency_key=request.idempotency_key,
            request_sha256=digest,
            credentials=tuple(sorted(stored_request.credentials)),
        )


def parse_overrides(values: Mapping[str, Any]) -> DefinitionOverrides | None:
    """Check overrides by name; None when there are none.

    Raises Refused, naming the field and the nearest valid one.
    """
    for name in values:
        if name not in OVERRIDES:
            hint = did_you_mean(name, OVERRIDES) or f"; known are {', '.join(OVERRIDES)}"
            raise bad_request(f"overrides: there is no field {name[:80]!r}{hint}")
    present = {name: value for name, value in values.items() if value is not None}
    if not present:
        return None
    for name in TEXT_FIELDS:
        if name in present:
            _check_text(name, present[name])
    for name, most in INTEGER_FIELDS.items():
        if name in present and (type(present[name]) is not int or not 0 <= present[name] <= most):
            raise bad_request(
                f"overrides.{name} is {str(present[name])[:60]}: expected a whole number from 0 to {most}"
            )
    sampling = {name: _sampling_value(name, present[name]) for name in SAMPLING_FIELDS if name in present}
    return DefinitionOverrides(
        **{name: present[name] for name in (*TEXT_FIELDS, *INTEGER_FIELDS) if name in present},
        tools=_parse_names("tools", present["tools"]) if "tools" in present else None,
        sampling=check_sampling(Sampling(**sampling)) if sampling else None,
    )


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise bad_request(f"overrides.{name} is {str(value)[:60]}: expected a text")
    if has_tokens(value):
        raise bad_request(f"overrides.{name} holds a token of encrypted content, which would be opened for a model")
    if name == "effort" and value not in EFFORTS:
        raise bad_request(f"overrides.effort is {value[:60]!r}: expected low, medium, high or an empty text")
    if name in ("provider", "model") and not (0 < len(value) <= limits.NAME_BYTES_MAX and value.isprintable()):
        raise bad_request(f"overrides.{name}: expected 1 to {limits.NAME_BYTES_MAX} printable characters")
    if len(value.encode()) > limits.INLINE_BYTES:
        raise bad_request(f"overrides.{name}: at most {limits.INLINE_BYTES} bytes")


def _sampling_value(name: str, value: Any) -> Any:
    if name == "stop":
        return _parse_names(name, value)
    allowed_types = (int,) if name in INTEGER_SAMPLING else (int, float)
    if isinstance(value, bool) or not isinstance(value, allowed_types):
        kind = "a whole number" if name in INTEGER_SAMPLING else "a number"
        raise bad_request(f"overrides.{name} is {str(value)[:60]}: expected {kind}")
    return value if name in INTEGER_SAMPLING else float(value)


def _parse_names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise bad_request(f"overrides.{name}: expected a list of texts")
    if len(value) > limits.NAMES_MAX or any(not 0 < len(one.encode()) <= limits.NAME_BYTES_MAX for one in value):
        raise bad_request(
            f"overrides.{name}: at most {limits.NAMES_MAX} entries of 1 to {limits.NAME_BYTES_MAX} bytes each"
        )
    return tuple(value)


def _check_request(request: ForkRequest) -> RunRequest:
    """Check the parts that a fork has in common with a start, in the same way."""
    if request.agent and not AGENT_NAME.match(request.agent):
        raise bad_request(f"agent is {request.agent[:60]!r}: expected the name of an agent")
    if len(request.definition) > DEFINITION_TEXT_MAX or not request.definition.isascii():
        raise bad_request("definition: expected current, or the beginning of a definition's SHA-256")
    has_text = bool(request.prompt or request.segments)
    plain = check_request(
        RunRequest(
            prompt=request.prompt if has_text else PLACEHOLDER,
            segments=request.segments,
            agent_id=request.agent_id,
            idempotency_key=request.idempotency_key,
            user_bearer=request.user_bearer,
            user_credentials=request.user_credentials,
            traceparent=request.traceparent,
        )
    )
    return plain if has_text else replace(plain, segments=())


def _fork_digest(request: ForkRequest, run_id: str) -> str:
    whole = {
        "fork": run_id,
        "at": request.at_seq,
        "agent": request.agent,
        "definition": request.definition,
        "overrides": dict(request.overrides or {}),
        "prompt": request.prompt,
        "segments": [segment.to_avro() for segment in request.segments],
        "agent_id": request.agent_id,
        "interactive": request.interactive,
    }
    return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()
