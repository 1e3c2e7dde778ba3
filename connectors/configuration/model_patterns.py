"""Choice of the model a pattern refers to: the newest of those the provider lists.

Names are compared by their runs of digits as numbers (`gpt-4.10` is newer than `gpt-4.9`), a `:tag` is ignored, and a
name without a release date beats the same version with one (`claude-x-4-5` before `claude-x-4-5-20250929`), because the
bare name follows the provider's fixes. Several matches without any digit cannot be ordered: then no model is chosen,
which is better than a random one.

Before: the list a provider returned. After: resolve.py.
"""

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

_DIGITS = re.compile(r"\d+")
_RELEASE_DATE = re.compile(r"-(20\d{6})$")


def select_newest(pattern: str, names: Sequence[str]) -> str | None:
    """Return the newest listed name that matches the glob `pattern`; None when nothing matches or the matches have no
    order.
    """
    matching = sorted({name for name in names if fnmatchcase(name, pattern) or fnmatchcase(_strip_tag(name), pattern)})
    if len(matching) > 1 and not any(_DIGITS.search(_strip_tag(name)) for name in matching):
        return None
    return max(matching, key=_version_key, default=None)


def _version_key(name: str) -> tuple[tuple[int, ...], bool, str, int, tuple[int, ...]]:
    """Return a sort key, larger is newer. Of equal versions: undated first, then later date,
    shorter name, first name.
    """
    bare = _strip_tag(name)
    dated = _RELEASE_DATE.search(bare)
    version = tuple(int(run) for run in _DIGITS.findall(bare[: dated.start()] if dated else bare))
    return version, not dated, dated[1] if dated else "", -len(name), tuple(-ord(character) for character in name)


def _strip_tag(name: str) -> str:
    return name.partition(":")[0]
