"""Block of channels in the configuration files: channels.<name>.

Before: field_types.py. After: model.py; services/families/channel/declarations.py, which checks those made at run time
with the same rules.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, BeforeValidator, Field

from loomlog.connectors.configuration.field_classes import BOUND, NEUTRAL, Grant, Order
from loomlog.connectors.configuration.field_types import NonNegativeInt, configuration_block

SYSTEM, ANY = "system", "any"
"""Values of `publisher`."""
SYSTEM_PREFIX = "_system/"
"""Channels whose names begin with it have the publisher system, whatever is declared."""
MAX_NAME_CHARACTERS = 200
MAX_QUOTED_NAME_BYTES = 256
"""Bytes of a name in the id of a queue, which has 512 together with its scope id."""
MAX_TTL_S = 10 * 366 * 24 * 3_600
MAX_PERIOD_S = 31 * 24 * 3_600
MAX_KEPT_MESSAGES = 1_000_000_000
RUNTIME_STATE, PROVIDER_EVENTS = "_system/runtime-state", "_system/provider-events"
INTERRUPTS_PENDING, INTERRUPTS_RESOLVED = "_system/interrupts/pending", "_system/interrupts/resolved"
INSTALLATION_EVENTS = (RUNTIME_STATE, PROVIDER_EVENTS)
"""Channels of what happens to the installation, which has no user and no agent."""
EVENT_CHANNELS = (*INSTALLATION_EVENTS, INTERRUPTS_PENDING, INTERRUPTS_RESOLVED)
"""Channels to which the runtime publishes when something happens, so that they need no period."""
_DURATION = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,8})m)?(?:(\d{1,9})s)?")
_SECONDS = (24 * 3_600, 3_600, 60, 1)

ChannelScope = Literal["agent", "user", "tenant", "global"]
Semantic = Literal["queue", "topic", "broadcast"]


def parse_duration_s(value: Any) -> Any:
    """Return the seconds of a text such as 90s, 1h30m or 7d; other values as they are. Raises ValueError."""
    if not isinstance(value, str):
        return value
    match = _DURATION.fullmatch(value.strip())
    if match is None or not any(match.groups()):
        raise ValueError("expected seconds, or a duration such as 90s, 1h30m or 7d")
    return sum(int(part) * seconds for part, seconds in zip(match.groups(), _SECONDS, strict=True) if part)


def format_duration(seconds: int) -> str:
    """Return a duration as `parse_duration_s` reads it, such as 1h30m; empty for 0."""
    parts = []
    for unit, size in zip("hms", _SECONDS[1:], strict=True):
        count, seconds = divmod(seconds, size)
        parts.append(f"{count}{unit}" if count else "")
    return "".join(parts)


def name_problem(name: str) -> str:
    """Return what is expected of the name of a channel; empty when it is right."""
    if not 0 < len(name) <= MAX_NAME_CHARACTERS or not name.isprintable():
        return f"expected 1 to {MAX_NAME_CHARACTERS} characters that can be printed"
    if len(quote(name, safe="", errors="surrogatepass")) > MAX_QUOTED_NAME_BYTES:
        return f"expected at most {MAX_QUOTED_NAME_BYTES} characters with all but letters and digits escaped (%2F)"
    if ".." in name or "//" in name or name.endswith(("/", "*")) or name.startswith("/"):
        return "expected no .., no //, no / at an end, and no * at the end, which stands for several channels"
    return ""


def _check_name(value: str) -> str:
    if problem := name_problem(value):
        raise ValueError(problem)
    return value


ChannelName = Annotated[str, AfterValidator(_check_name)]
Seconds = Annotated[NonNegativeInt, Field(le=MAX_TTL_S), BeforeValidator(parse_duration_s)]


@configuration_block
class ChannelBlock:
    """Value of channels.<name>. Times in seconds, or as durations such as 90s, 1h30m and 7d.

    `default_ttl` 0: messages are kept for ever. `max_messages` 0: any number.
    """

    scope: Annotated[ChannelScope, Grant(order=Order.UNSET)]
    semantic: Annotated[Semantic, NEUTRAL] = "queue"
    description: Annotated[str, NEUTRAL] = ""
    default_ttl: Annotated[Seconds, NEUTRAL] = 0
    max_messages: Annotated[NonNegativeInt, Field(le=MAX_KEPT_MESSAGES), BOUND] = 0
    publisher: Annotated[Literal["", "system", "any"], Grant(order=Order.UNSET)] = ""
    period: Annotated[Seconds, NEUTRAL] = 0


def iter_channel_problems(name: str, channel: ChannelBlock) -> Iterator[tuple[str, str]]:
    """Yield the key and what is wrong with it, of a channel whose fields are right one by one."""
    is_event, is_system = name in EVENT_CHANNELS, channel.publisher == SYSTEM
    if channel.period and not is_system:
        yield "period", "needs publisher: system, because the system publishes it"
    if channel.publisher == ANY and channel.scope != "global":
        yield "publisher", f"any is for the scope global: with the scope {channel.scope} all of the tenant publish"
    if channel.publisher == ANY and name.startswith(SYSTEM_PREFIX):
        yield "publisher", f"is any: only the system publishes to channels of {SYSTEM_PREFIX}"
    if channel.period > MAX_PERIOD_S:
        yield "period", f"is {format_duration(channel.period)}: expected at most {format_duration(MAX_PERIOD_S)}"
    if is_system and not channel.period and not is_event:
        names = ", ".join(EVENT_CHANNELS)
        yield "publisher", f"system needs a period, or one of the names of its events: {names}"
    if channel.period and channel.scope != "global":
        yield "scope", f"is {channel.scope}: a channel with a period has the scope global"
    if name in INSTALLATION_EVENTS and channel.scope != "global":
        yield "scope", f"is {channel.scope}: what happens to the installation has the scope global"


def iter_channel_errors(channels: Mapping[str, ChannelBlock]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the place of every mistake in the block, with a message."""
    for name, channel in channels.items():
        for key, message in iter_channel_problems(name, channel):
            yield ("channels", name, key), message
