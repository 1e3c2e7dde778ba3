"""Template of an environment file, made from the table of settings: every line is a comment.

Before: settings.py. After: `loomlog env-template` and GET /v1/_env_template.
"""

from collections.abc import Iterator

from loomlog.connectors.configuration.setting_types import PATHS
from loomlog.connectors.configuration.settings import SettingRow, setting_rows

HEAD = """# Settings of loomlog. Take the # away from what you change; docs/SETTINGS.md says more.
# Secrets belong in a file that only the service may read."""
SECRET = "keep it secret"


def render_env_template() -> str:
    """Return all settings by group, with their defaults. Contains no value of this process."""
    return "\n".join([HEAD, *_render_lines()]) + "\n"


def _render_lines() -> Iterator[str]:
    group = ""
    for row in setting_rows():
        if row.group != group:
            group = row.group
            yield f"\n# --- {group} ---"
        text = f"{row.value_type.label}; {SECRET}" if row.is_secret else row.value_type.label
        yield f"\n# {row.meaning} ({text})"
        yield f"# {row.name}={_format_default(row)}"


def _format_default(row: SettingRow) -> str:
    if row.default is None:
        return ""
    if isinstance(row.default, bool):
        return "1" if row.default else "0"
    if isinstance(row.default, tuple):
        return (":" if row.value_type is PATHS else ",").join(map(str, row.default))
    return str(row.default)
