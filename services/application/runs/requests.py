"""Requests about runs, as values, and the checks that need nothing but the request.

A transport fills in a RunRequest; types are already right then (checked by the transport), `check_request` checks the
rest: ids, sizes, roles, images, sampling. What depends on the configuration or the log (does the agent exist, is the
session busy) is decided by the owner of the run instead.

The two credentials are secrets: start.py stores their values outside the log, and only their names are passed on.

Before: a transport. After: start.py.
"""

import base64
import binascii
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import orjson
from msgspec import field

from loomlog.connectors.configuration.secret_registry import SecretRefused, SecretRegistry, require_hook_signatures
from loomlog.connectors.crypto.content_encryption import has_tokens
from loomlog.connectors.definitions import DefinitionProblem
from loomlog.connectors.definitions.triggers import hook_texts, parse_hooks
from loomlog.connectors.json_schema import SchemaRefused
from loomlog.connectors.output_schema import INTERACTIVE_WITH_SCHEMA, check_output_schema
from loomlog.connectors.tools.references import USER_BEARER_NAME as BEARER_NAME
from loomlog.schemas.generated.values import Compaction, ContentBlock, Sampling, Segment
from loomlog.schemas.ids import ID_PATTERN
from loomlog.schemas.records import Secretive, replace
from loomlog.services.application import limits
from loomlog.services.application.errors import bad_request
from loomlog.services.core.access.scopes import CHANNEL_PUBLISH, MEMORY_WRITE, TENANT
from loomlog.services.core.refusals import Refused
from loomlog.services.core.run.limits import AGENT_NAME, AUTO_PCT, KEEP_LAST_MAX, TARGET_PCT

CREDENTIAL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
DEFAULT_CREDENTIAL = "default"
BEARER_TOKEN = re.compile(r"[A-Za-z0-9._\-+/=]{16,512}\Z")
IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,255}\Z")
"""Visible ASCII: the characters that a header can carry."""
TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}\Z")
"""W3C trace context, version 00."""
ROLES = ("system", "user")
BLOCK_TYPES = ("trusted-text", "untrusted-block", "image")
IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
SHORT_IMAGE_TYPES = {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"}
"""Short names that existing clients use for these media types."""
WEB_SEARCH_FILTERS = ("drop", "keep")
"""Treatment of web search results outside allowed_hosts; the first is the default."""
PARENT_CONTEXT_KEYS = (
    "root_agent_run_id",
    "function_key",
    "tier_at_run",
    "board_scope",
    "board_chunk_id",
    "board_document_id",
)
"""Keys of parent_context (runtime parity 1.1)."""


class RunRequest(Secretive, frozen=True, kw_only=True):
    """A run as requested. Empty text and None mean unset."""

    SECRETS: ClassVar[frozenset[str]] = frozenset({"user_bearer", "user_credentials"})

    agent: str = ""
    prompt: str = ""
    segments: tuple[Segment, ...] = ()
    session_id: str = ""
    agent_id: str = ""
    user_id: str = ""
    user_tier: str = ""
    tools: tuple[str, ...] | None = None
    allowed_hosts: tuple[str, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent_context: Mapping[str, str] = field(default_factory=dict)
    interactive: bool = False
    run_timeout_s: int = 0
    """Seconds of work after which the run fails; 0 means the agent's setting."""
    sampling: Sampling | None = None
    compaction: Compaction | None = None
    output_schema: Mapping[str, Any] | None = None
    """JSON Schema of the final answer, instead of the agent's."""
    output_retries: int | None = None
    on_complete: tuple[Mapping[str, Any], ...] = ()
    """Hooks that are carried out when the run has ended (connectors/definitions/triggers.py)."""
    web_search_filter: str = ""
    payload_metadata: Mapping[str, Any] = field(default_factory=dict)
    """From the body of a trigger, never from a client: presented to the model as untrusted."""
    idempotency_key: str = ""
    batch_sha256: str = ""
    """Hash of the batch under whose Idempotency-Key the run is started."""
    user_bearer: str = ""
    user_credentials: Mapping[str, str] = field(default_factory=dict)
    traceparent: str = ""
    """Trace context of the caller; a malformed one is dropped, as the standard requires."""

    @property
    def credentials(self) -> dict[str, str]:
        """All credentials by name. The bearer has its own name, and is also `default` unless another credential is."""
        by_name = dict(self.user_credentials)
        if self.user_bearer:
            by_name[BEARER_NAME] = self.user_bearer
            by_name.setdefault(DEFAULT_CREDENTIAL, self.user_bearer)
        return by_name


def check_idempotency_key(key: str) -> None:
    """Raise Refused(bad_request) unless a header can carry the key."""
    if not IDEMPOTENCY_KEY.match(key):
        raise bad_request(
            f"Idempotency-Key: expected 1 to {limits.IDEMPOTENCY_KEY_MAX} visible ASCII characters without spaces"
        )


def check_request(request: RunRequest) -> RunRequest:
    """Check and normalise a request for hashing and publishing. Raises Refused, naming the field."""
    if request.session_id:
        check_id("session_id", request.session_id)
    if request.agent_id:
        check_id("agent_id", request.agent_id)
    if request.user_id:
        check_id("user_id", request.user_id)
    if request.agent and not AGENT_NAME.match(request.agent):
        raise bad_request(
            f"agent is {_quote(request.agent)}: expected 1 to 128 of letters, digits, _ and -, in parts with / between"
        )
    if request.idempotency_key:
        check_idempotency_key(request.idempotency_key)
    if request.web_search_filter and request.web_search_filter not in WEB_SEARCH_FILTERS:
        raise bad_request(f"web_search_filter is {_quote(request.web_search_filter)}: expected drop or keep")
    _check_name("user_tier", request.user_tier)
    _check_names("tools", request.tools)
    _check_names("allowed_hosts", request.allowed_hosts)
    _check_credentials(request)
    _check_metadata("metadata", request.metadata)
    _check_metadata("payload_metadata", request.payload_metadata)
    if request.compaction is not None:
        check_compaction(request.compaction)
    if not 0 <= request.run_timeout_s <= limits.RUN_TIMEOUT_MAX_S:
        raise bad_request(
            f"run_timeout_seconds is {request.run_timeout_s}: expected 0 to {limits.RUN_TIMEOUT_MAX_S}; 0 leaves it "
            "to the agent"
        )
    if request.sampling is not None:
        check_sampling(request.sampling)
    if request.output_schema is not None:
        _check_output(request.output_schema, interactive=request.interactive)
    return replace(
        request,
        segments=_check_segments(request),
        prompt="",
        parent_context=_check_parent_context(request.parent_context),
        on_complete=_check_hooks(request.on_complete),
        # Without a list of hosts there is nothing to filter by; with one, results from other hosts are dropped
        # (parity).
        web_search_filter="" if request.allowed_hosts is None else request.web_search_filter or WEB_SEARCH_FILTERS[0],
        traceparent=request.traceparent if TRACEPARENT.match(request.traceparent) else "",
    )


def check_id(name: str, value: str) -> None:
    """Check an id from a caller. Raises Refused when it can neither be a generated id nor be chosen."""
    if not ID_PATTERN.match(value):
        raise bad_request(f"{name} is {_quote(value)}: expected 1 to 128 of letters, digits, _ and -")


def check_user_id(value: str) -> None:
    """Check a user: an id, or a token's subject, which allows more characters. Raises Refused."""
    if len(value) > limits.NAME_BYTES_MAX or not value.isprintable():
        raise bad_request(f"user_id: expected at most {limits.NAME_BYTES_MAX} printable characters")


def request_digest(request: RunRequest) -> str:
    """Return the hex SHA-256 over everything that identifies a checked request; the key itself is not part of it."""
    whole: dict[str, Any] = {
        "agent": request.agent,
        "session_id": request.session_id,
        "agent_id": request.agent_id,
        "user_id": request.user_id,
        "user_tier": request.user_tier,
        "tools": request.tools,
        "allowed_hosts": request.allowed_hosts,
        "segments": [segment.to_avro() for segment in request.segments],
        "metadata": request.metadata,
        "parent_context": request.parent_context,
        "interactive": request.interactive,
        "sampling": None if request.sampling is None else request.sampling.to_avro(),
        # Omitted when unset, so that requests from before this field keep their hash.
        **({"run_timeout_s": request.run_timeout_s} if request.run_timeout_s else {}),
    }
    # Only when set: a key used before these fields were supported still identifies the same request.
    if request.compaction is not None:
        whole["compaction"] = request.compaction.to_avro()
    if request.web_search_filter not in ("", WEB_SEARCH_FILTERS[0]):
        whole["web_search_filter"] = request.web_search_filter
    if request.payload_metadata:
        whole["payload_metadata"] = request.payload_metadata
    if request.on_complete:
        whole["on_complete"] = request.on_complete
    if request.output_schema is not None:
        whole["output_schema"] = request.output_schema
    if request.output_retries is not None:
        whole["output_retries"] = request.output_retries
    if request.batch_sha256:
        whole["batch"] = request.batch_sha256
    return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()


def hook_scopes(request: RunRequest) -> frozenset[str]:
    """Return the scopes of access that the hooks of a checked request need, besides that of the run."""
    scopes = {"channel.publish": CHANNEL_PUBLISH, "memory.set": MEMORY_WRITE, "mcp.call": TENANT}
    return frozenset(
        scopes[hook["kind"]]
        for hook in request.on_complete
        if hook["kind"] in scopes and not (hook["kind"] == "memory.set" and hook["scope"] == "user")
    )


def hook_channels(request: RunRequest) -> Sequence[str]:
    """Return the channels to which the hooks of a checked request publish."""
    return [hook["channel"] for hook in request.on_complete if hook["kind"] == "channel.publish"]


def to_json_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Convert a JSON object to the map of JSON texts that a StartRun contains."""
    return {name: orjson.dumps(value).decode() for name, value in values.items()}


# --- segments --------------------------------------------------------------------------------------------------------


def _check_segments(request: RunRequest) -> tuple[Segment, ...]:
    segments = request.segments
    if request.prompt and not segments:  # segments are the more exact form of the same
        segments = (Segment(role="user", content=(ContentBlock(type="trusted-text", text=request.prompt),)),)
    if len(segments) > limits.SEGMENTS_MAX:
        raise bad_request(f"segments: {len(segments)} of them, at most {limits.SEGMENTS_MAX}")
    if sum(len(segment.content) for segment in segments) > limits.BLOCKS_MAX:
        raise bad_request(f"segments: at most {limits.BLOCKS_MAX} content blocks, all together")
    if not any(_has_content(block) for segment in segments if segment.role == "user" for block in segment.content):
        raise bad_request("the run has no input: give prompt, or a segment with role user and content")
    return tuple(
        Segment(
            role=segment.role,
            content=tuple(
                _check_block(block, segment.role, f"segments[{number}].content[{place}]")
                for place, block in enumerate(segment.content)
            ),
        )
        for number, segment in enumerate(_check_roles(segments))
    )


def _has_content(block: ContentBlock) -> bool:
    """Whether a block has content; white space alone has none, and some providers refuse a message of it."""
    return block.type == "image" or bool(block.text.strip())


def _check_roles(segments: Sequence[Segment]) -> Sequence[Segment]:
    for number, segment in enumerate(segments):
        if segment.role not in ROLES:
            raise bad_request(f"segments[{number}].role is {_quote(segment.role)}: expected system or user")
    return segments


def _check_block(block: ContentBlock, role: str, path: str) -> ContentBlock:
    if block.type not in BLOCK_TYPES:
        raise bad_request(f"{path}.type is {_quote(block.type)}: expected {', '.join(BLOCK_TYPES)}")
    if block.type == "image":
        return _check_image(block, role, path)
    if block.data or block.media_type:
        raise bad_request(f"{path}: data and media_type belong to blocks of type image")
    if block.kind and block.type != "untrusted-block":
        raise bad_request(f"{path}.kind belongs to blocks of type untrusted-block")
    _check_name(f"{path}.kind", block.kind)
    return block


def _check_image(block: ContentBlock, role: str, path: str) -> ContentBlock:
    if role != "user":
        raise bad_request(f"{path}: images belong in segments with role user")
    media_type = SHORT_IMAGE_TYPES.get(block.media_type, block.media_type)
    if media_type not in IMAGE_TYPES:
        raise bad_request(f"{path}.media_type is {_quote(block.media_type)}: expected {', '.join(IMAGE_TYPES)}")
    if block.text or block.kind:
        raise bad_request(f"{path}: an image has no text and no kind")
    try:
        raw = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise bad_request(f"{path}.data is not base64: {error}") from error
    if not raw:
        raise bad_request(f"{path}.data is empty: expected an image in base64")
    return replace(block, media_type=media_type)


# --- the rest --------------------------------------------------------------------------------------------------------


def _check_names(name: str, values: tuple[str, ...] | None) -> None:
    if values is None:
        return
    if len(values) > limits.NAMES_MAX:
        raise bad_request(f"{name}: {len(values)} entries, at most {limits.NAMES_MAX}")
    for place, value in enumerate(values):
        if not value:
            raise bad_request(f"{name}[{place}] is empty")
        _check_name(f"{name}[{place}]", value)


def _check_name(name: str, value: str) -> None:
    if len(value.encode()) > limits.NAME_BYTES_MAX:
        raise bad_request(f"{name}: at most {limits.NAME_BYTES_MAX} bytes")
    if not value.isprintable():
        raise bad_request(f"{name} is {_quote(value)}: expected printable characters")
    if has_tokens(value):
        raise bad_request(f"{name} is {_quote(value)}: a token of encrypted content is no name")


def _check_credentials(request: RunRequest) -> None:
    if len(request.user_credentials) > limits.CREDENTIALS_MAX:
        raise bad_request(f"user_credentials: {len(request.user_credentials)}, at most {limits.CREDENTIALS_MAX}")
    for name in request.user_credentials:
        if not CREDENTIAL_NAME.match(name):
            raise bad_request(f"user_credentials: name {_quote(name)}: expected 1 to 64 of letters, digits, _ and -")
    # The values are secrets and must never appear in messages.
    for value in request.user_credentials.values():
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise bad_request("user_credentials: a value holds half of a surrogate pair")
        if not value or len(value) > limits.CREDENTIAL_CHARACTERS_MAX:
            raise bad_request(
                f"user_credentials: a value is empty or longer than {limits.CREDENTIAL_CHARACTERS_MAX} characters"
            )
    if request.user_bearer and not BEARER_TOKEN.match(request.user_bearer):
        raise bad_request("user_bearer: expected 16 to 512 of letters, digits and . _ - + / =")


def _check_metadata(what: str, metadata: Mapping[str, Any]) -> None:
    if len(metadata) > limits.METADATA_KEYS_MAX:
        raise bad_request(f"{what}: {len(metadata)} keys, at most {limits.METADATA_KEYS_MAX}")
    for name in metadata:
        _check_name(f"{what}: a key", name)
    try:
        size = len(orjson.dumps(metadata))
    except orjson.JSONEncodeError as error:
        raise bad_request(f"{what} is nested too deeply or holds a number of more than 64 bits: {error}") from error
    if size > limits.METADATA_BYTES_MAX:
        raise bad_request(f"{what}: {size} bytes, at most {limits.METADATA_BYTES_MAX}")


def _check_output(schema: Mapping[str, Any], *, interactive: bool) -> None:
    if interactive:
        raise bad_request(f"output_schema: {INTERACTIVE_WITH_SCHEMA}")
    try:
        check_output_schema(schema)
    except SchemaRefused as refused:
        raise bad_request(f"output_schema: {refused}") from refused


def _check_hooks(hooks: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """Check hooks and leave out what has its default."""
    if not hooks:
        return ()
    try:
        return tuple(map(orjson.loads, hook_texts(parse_hooks(hooks))))
    except DefinitionProblem as problem:
        raise bad_request(problem.message) from None


def check_signatures(secrets: SecretRegistry, hooks: Sequence[Mapping[str, Any]], tenant: str) -> None:
    """Raise Refused(bad_request) unless a tenant may have each hook signed with the secret that it names."""
    try:
        require_hook_signatures(secrets, hooks, tenant)
    except SecretRefused as refused:
        raise bad_request(str(refused)) from refused


def _check_parent_context(context: Mapping[str, str]) -> Mapping[str, str]:
    """Check parent_context and drop empty values."""
    for name, value in context.items():
        if name not in PARENT_CONTEXT_KEYS:
            raise bad_request(f"parent_context: there is no {_quote(name)}; expected {', '.join(PARENT_CONTEXT_KEYS)}")
        if len(value.encode()) > limits.PARENT_CONTEXT_VALUE_BYTES:
            raise bad_request(f"parent_context.{name}: at most {limits.PARENT_CONTEXT_VALUE_BYTES} bytes")
    return {name: value for name, value in context.items() if value}


def check_compaction(compaction: Compaction) -> Compaction:
    """Check compaction options against their bounds. Raises Refused."""
    bounds: tuple[tuple[str, int | None, int, int], ...] = (
        ("target_percentage", compaction.target_percentage, *TARGET_PCT),
        ("keep_last_n", compaction.keep_last_n, 0, KEEP_LAST_MAX),
        ("autocompact_at_pct", compaction.autocompact_at_pct, *AUTO_PCT),
    )
    for name, value, least, most in bounds:
        if value is not None and not least <= value <= most:
            raise bad_request(f"compaction.{name} is {value}: expected {least} to {most}")
    _check_name("compaction.model", compaction.model)
    return compaction


def check_sampling(sampling: Sampling) -> Sampling:
    """Check sampling options against their bounds. Raises Refused."""
    bounds: tuple[tuple[str, float | None, float, float], ...] = (
        ("temperature", sampling.temperature, 0, 2),
        ("top_p", sampling.top_p, 0, 1),
        ("top_k", sampling.top_k, 1, 2**31 - 1),
        ("frequency_penalty", sampling.frequency_penalty, -2, 2),
        ("presence_penalty", sampling.presence_penalty, -2, 2),
        ("seed", sampling.seed, -(2**63), 2**63 - 1),
    )
    for name, value, least, most in bounds:
        if value is not None and not (math.isfinite(value) and least <= value <= most):
            raise bad_request(f"sampling.{name} is {value}: expected {least} to {most}")
    if len(sampling.stop) > limits.STOP_STRINGS_MAX:
        raise bad_request(f"sampling.stop: {len(sampling.stop)} strings, at most {limits.STOP_STRINGS_MAX}")
    for place, stop in enumerate(sampling.stop):
        if not stop or len(stop.encode()) > limits.NAME_BYTES_MAX:
            raise bad_request(f"sampling.stop[{place}]: expected 1 to {limits.NAME_BYTES_MAX} bytes")
    return sampling


def check_input(text: str) -> str:
    """Check a user text for a live run. Raises Refused."""
    if not text.strip():
        raise Refused("empty_text", "text is empty: expected what the user says")
    if len(text.encode()) > limits.INPUT_BYTES_MAX:
        raise Refused("payload_too_large", f"text: at most {limits.INPUT_BYTES_MAX} bytes")
    return text


def check_result(result: str, *, done: bool) -> None:
    """Check the result that a person reports for a tool call. Raises Refused."""
    if result and not done:
        raise bad_request("result: only a call that is done has one; leave it out, the call is made again")
    if len(result.encode()) > limits.RESULT_BYTES_MAX:
        raise Refused("payload_too_large", f"result: at most {limits.RESULT_BYTES_MAX} bytes")


def _quote(text: str) -> str:
    """Quote a text of the caller for a message: short, on one line."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")
