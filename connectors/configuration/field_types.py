"""Annotated types of the fields of a configuration file.

Whole numbers are strict (a quoted "12" is text, true is no number). Switches also accept yes, no, on and off, as older
YAML readers did. A single word is accepted as a list of one where the reference accepts that. Environment names are
NAMES, so a value pasted in their place is refused without being repeated.

After: model.py and agent_block.py are written with these.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import isfinite
from typing import Annotated, Any, Literal, TypeVar, dataclass_transform
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, Strict

from loomlog.connectors.configuration.setting_types import FALSE_WORDS, TRUE_WORDS
from loomlog.connectors.configuration.storable_text import describe_text_problem
from loomlog.connectors.json_schema import SchemaRefused
from loomlog.connectors.output_schema import check_output_schema

_Block = TypeVar("_Block")


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
def configuration_block(block: type[_Block]) -> type[_Block]:
    """Make a class a block: a frozen dataclass that pydantic fills, and that refuses unknown keys.

    load.py finds those first, with their line; the refusal here catches a drift of the two.
    """
    block.__pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[attr-defined]  # what pydantic looks for
    return dataclass(frozen=True, slots=True, kw_only=True)(block)


AGENT_NAME_LENGTH = 128
_AGENT_NAME = re.compile(r"[A-Za-z0-9_-]+(?:/[A-Za-z0-9_-]+)*")
_ENV_NAME = re.compile(r"[A-Z_][A-Z0-9_]{0,127}")
_PROVIDER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VOLUME_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_REMOTE_TOOL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
TENANT_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OPTIONAL_TENANT = re.compile(r"[A-Za-z0-9_-]{0,64}")
_TENANT_OR_ALL = re.compile(r"\*|[A-Za-z0-9_-]{1,64}")
_HOST_NAME = re.compile(r"(?!.*\.\.)[a-z0-9_][a-z0-9_.:-]{0,252}")
_BLOCK_LABEL = re.compile(r"[A-Za-z0-9_-]{1,64}")
SUBJECT_PATTERN = re.compile(r"[A-Za-z0-9_.@-]{1,128}")


def parse_switch(value: Any) -> Any:
    """Return true or false for the words that mean it, and other values as they are."""
    if isinstance(value, str) and value.casefold() in TRUE_WORDS | FALSE_WORDS:
        return value.casefold() in TRUE_WORDS
    return value


def require_number(value: Any) -> Any:
    """Refuse what pydantic would turn into a number: text and switches."""
    if isinstance(value, bool | str):
        raise ValueError("expected a number")
    return value


def _wrap_single(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def to_block(value: Any, key: str) -> Any:
    """Return a text as the block that has it under `key`, and other values as they are."""
    return {key: value} if isinstance(value, str) else value


def to_json_value(value: Any) -> Any:
    """Return the value with tuples as lists and fractions as floats. Raises ValueError for what JSON cannot hold."""
    match value:
        case str() if problem := describe_text_problem(value):
            raise ValueError(f"expected another text: {problem}")
        case int() | str() | None:
            return value
        case float() | Decimal():
            if not isfinite(number := float(value)):
                raise ValueError("expected a finite number of at most 1.8e308")
            return number
        case tuple() | list():
            return [to_json_value(item) for item in value]
        case Mapping():
            return {to_json_value(key): to_json_value(item) for key, item in value.items()}
    raise ValueError("expected a JSON value")


def check_agent_name(value: str) -> str:
    """Return the name. Raises ValueError with what is expected."""
    if len(value) > AGENT_NAME_LENGTH or not _AGENT_NAME.fullmatch(value):
        raise ValueError(
            f"expected at most {AGENT_NAME_LENGTH} characters: letters, digits, _ and -, with / between parts"
        )
    return value


def _match_pattern(pattern: re.Pattern[str], expected: str) -> AfterValidator:
    def check(value: str) -> str:
        if not pattern.fullmatch(value):
            raise ValueError(f"expected {expected}")
        return value

    return AfterValidator(check)


def check_url(url: str) -> str:
    """Return the address. Raises ValueError with what is expected: http or https, a host, and no password."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError("expected an address like https://example.com/path")
    if "@" in parts.netloc:
        raise ValueError("expected an address without user and password, which everyone could read")
    return url


def _check_output_schema(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if value:
        try:
            check_output_schema(value)
        except SchemaRefused as refused:
            raise ValueError(f"expected a JSON Schema of a record: {refused}") from None
    return value


def zero_for(default: int) -> BeforeValidator:
    """Return the rule of a number whose 0 stands for the default, as in the files of the reference."""
    return BeforeValidator(lambda value: default if type(value) is int and value == 0 else value)


JsonValue = Annotated[Any, AfterValidator(to_json_value)]
JsonObject = Annotated[Mapping[str, Any], AfterValidator(to_json_value)]
"""Values that their author is free to choose, as JSON has them: files have fractions as Decimal."""
OutputSchema = Annotated[JsonObject, AfterValidator(_check_output_schema)]
Switch = Annotated[bool, BeforeValidator(parse_switch), Strict()]
StrictInt = Annotated[int, Strict()]
NonNegativeInt = Annotated[int, Strict(), Field(ge=0)]
PositiveInt = Annotated[int, Strict(), Field(ge=1)]
FiniteFloat = Annotated[float, BeforeValidator(require_number), Field(allow_inf_nan=False)]
StringList = Annotated[tuple[str, ...], BeforeValidator(_wrap_single)]
_Word = TypeVar("_Word")
WordList = Annotated[tuple[_Word, ...], BeforeValidator(_wrap_single)]

AgentName = Annotated[str, AfterValidator(check_agent_name)]
EnvName = Annotated[
    str, _match_pattern(_ENV_NAME, "the NAME of an environment variable (capitals, digits and _), never its value")
]
ProviderId = Annotated[str, _match_pattern(_PROVIDER_ID, "at most 64 letters, digits, ., _ and -")]
VolumeName = Annotated[str, _match_pattern(_VOLUME_NAME, "at most 64 letters, digits, _ and -")]
RemoteToolName = Annotated[str, _match_pattern(_REMOTE_TOOL_NAME, "a letter and at most 63 letters, digits, _ and -")]
BlockLabel = Annotated[str, _match_pattern(_BLOCK_LABEL, "1 to 64 letters, digits, _ and -")]
Url = Annotated[str, AfterValidator(check_url)]
OptionalUrl = Annotated[str, AfterValidator(lambda url: check_url(url) if url else url)]
OptionalTenant = Annotated[str, _match_pattern(_OPTIONAL_TENANT, "at most 64 letters, digits, _ and -")]
Tenant = Annotated[str, _match_pattern(TENANT_PATTERN, "at most 64 letters, digits, _ and -")]
TenantOrAll = Annotated[str, _match_pattern(_TENANT_OR_ALL, "the name of a tenant, or * for all")]
HostName = Annotated[str, _match_pattern(_HOST_NAME, "a host name in lower case, without scheme, port or path")]
Subject = Annotated[str, _match_pattern(SUBJECT_PATTERN, "at most 128 letters, digits, _, ., @ and -")]

Tier = Literal["low", "middle", "high"]
Effort = Literal["low", "medium", "high"]
VolumeMode = Literal["ro", "rw"]
MemoryScope = Literal["agent", "user", "tenant"]
SqlScope = Literal["agent", "user", "run", "tenant"]
Scope = Literal[
    "substrate:admin",
    "substrate:tenant",
    "substrate:user",
    "runs:create",
    "runs:read",
    "channel:publish",
    "channel:read",
    "memory:write",
    "tenant:read",
    "providers:operator-key",
]
"""Closed catalogue of scopes."""
Driver = Literal["anthropic", "openai", "gemini", "deepseek", "ollama", "mock", "anthropic_oauth_dev", "code-js"]
