"""Value types of LOOMLOG_* settings: how text becomes a value, and the message for an invalid one.

Each type is a parser and a label. A parser raises ValueError with the words "expected ..."; environment.py adds the
name of the setting and, unless it is a secret, the text it had.

After: settings.py uses these in its table, document.py prints their labels.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlsplit

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off"})
MAX_PORT = 65535
ALL_INTERFACES = ("", "0.0.0.0", "[::]")
_FLAG_NAME = re.compile(r"[A-Za-z0-9._:@+-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingType:
    """Syntax of a setting's value. `is_path` marks values that are resolved against the working directory."""

    label: str
    parse: Callable[[str], object]
    is_path: bool = False


def integer(minimum: int, maximum: int, unit: str = "") -> SettingType:
    """Whole number; outside of the bounds is an error, because silently using another number would surprise."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}") from None
        if not minimum <= value <= maximum:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}")
        return value

    return SettingType(label=f"{unit or 'number'}, {minimum} to {maximum}", parse=parse)


def clamped_integer(minimum: int, maximum: int, unit: str) -> SettingType:
    """Whole number that is clamped to the bounds; 0 and less mean off. Parity: deployments rely on the clamp."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError("expected a whole number") from None
        return 0 if value <= 0 else min(max(value, minimum), maximum)

    return SettingType(label=f"{unit}, moved into {minimum} to {maximum}; 0 or less = off", parse=parse)


def one_of(*words: str) -> SettingType:
    """One of a few words, in any case."""

    def parse(text: str) -> str:
        for word in words:
            if text.casefold() == word.casefold():
                return word
        raise ValueError(f"expected one of {', '.join(words)}")

    return SettingType(label=" or ".join(words), parse=parse)


def _parse_flag(text: str) -> bool:
    word = text.casefold()
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ValueError("expected 1 or 0")


def _parse_flag_or_name(text: str) -> str:
    word = text.casefold()
    if word in FALSE_WORDS:
        return ""
    if word in TRUE_WORDS:
        return "1"
    if not _FLAG_NAME.fullmatch(text):
        raise ValueError("expected 0, 1 or a name of at most 64 letters, digits and . _ : @ + -")
    return text


def _parse_ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("expected a number from 0 to 1") from None
    if not 0 <= value <= 1:
        raise ValueError("expected a number from 0 to 1")
    return value


def _parse_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def _parse_paths(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(":") if part)


def _parse_address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > MAX_PORT:
        raise ValueError("expected host:port, like 127.0.0.1:8787 or [::1]:8787")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError("expected an IPv6 host in brackets, like [::1]:8787")
    return text


def _parse_address_or_off(text: str) -> str:
    return "" if text.casefold() == "off" else _parse_address(text)


def _parse_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected an http or https URL")
    return text.rstrip("/")


def _parse_servers(text: str) -> str:
    servers = [part.strip() for part in text.split(",") if part.strip()]
    if not servers:
        raise ValueError("expected host:port, or several with commas between")
    return ",".join(_parse_address(server) for server in servers)


def _parse_origins(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_parse_origin(part.strip()) for part in text.split(",") if part.strip()))


def _parse_origin(text: str) -> str:
    parts = urlsplit(text.rstrip("/").lower())
    is_local = parts.hostname in ("localhost", "127.0.0.1", "::1")
    if parts.scheme not in (("http", "https") if is_local else ("https",)) or not parts.hostname:
        raise ValueError("expected origins like https://portal.example; http only for localhost")
    if parts.path or parts.query or parts.fragment or parts.username is not None or "*" in text:
        raise ValueError("expected origins like https://portal.example: scheme, host and port alone")
    return f"{parts.scheme}://{parts.netloc}"


TEXT = SettingType(label="text", parse=str)
FLAG_OR_NAME = SettingType(label="0, 1 or a name", parse=_parse_flag_or_name)
FLAG = SettingType(label="1 or 0", parse=_parse_flag)
RATIO = SettingType(label="0 to 1", parse=_parse_ratio)
NAMES = SettingType(label="names with commas between", parse=_parse_names)
ADDRESS = SettingType(label="host:port", parse=_parse_address)
ADDRESS_OR_OFF = SettingType(label="host:port or off", parse=_parse_address_or_off)
SERVERS = SettingType(label="host:port, several with commas between", parse=_parse_servers)
URL = SettingType(label="URL", parse=_parse_url)
ORIGINS = SettingType(label="origins with commas between", parse=_parse_origins)
PATH = SettingType(label="path", parse=str, is_path=True)
PATHS = SettingType(label="paths with colons between", parse=_parse_paths, is_path=True)
