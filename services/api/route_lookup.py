"""Finds the route of a request: a dictionary for paths without parameters, a few patterns for the others.

FastAPI tries its routes one after the other, and enters a stack of its own for each request: a path that no route has
would cost 1.4 ms (python -m cProfile of app.py, 228 routes), before anybody's token was read.

Before: app.py. After: the application of the route.
"""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from starlette.convertors import Convertor
from starlette.routing import compile_path
from starlette.types import ASGIApp

SEGMENTS = 2
"""Segments of a path by which patterns are grouped: `/v1/memory`."""


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    convertors: dict[str, Convertor[Any]]
    application: ASGIApp


class RouteLookup:
    """Applications by method and path; of two that fit the first is found, as in FastAPI."""

    def __init__(self, routes: Iterable[tuple[str, str, ASGIApp]]) -> None:
        """`routes`: method, path as Starlette writes it, and application, in the order of the table."""
        self._exact: dict[tuple[str, str], ASGIApp] = {}
        self._patterns: dict[tuple[str, str], list[_Pattern]] = {}
        self._methods: set[str] = set()
        for method, path, application in routes:
            self._methods.add(method)
            if "{" not in path:
                self._exact.setdefault((method, path), application)
                continue
            group = _group(path)
            assert "{" not in group, f"{path}: its first {SEGMENTS} segments have to be fixed"
            regex, _, convertors = compile_path(path)
            self._patterns.setdefault((method, group), []).append(_Pattern(regex, convertors, application))

    def find(self, method: str, path: str) -> tuple[ASGIApp, dict[str, Any]] | None:
        """Return the application and the parameters of the path; None when there is none."""
        application = self._exact.get((method, path))
        if application is not None:
            return application, {}
        for pattern in self._patterns.get((method, _group(path)), ()):
            if match := pattern.regex.match(path):
                parameters = {
                    name: pattern.convertors[name].convert(value) for name, value in match.groupdict().items()
                }
                return pattern.application, parameters
        return None

    def methods(self, path: str) -> set[str]:
        """Return every method for which the path has a route."""
        return {method for method in self._methods if self.find(method, path) is not None}


def _group(path: str) -> str:
    return "/".join(path.split("/", SEGMENTS + 1)[: SEGMENTS + 1])
