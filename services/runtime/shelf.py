"""The tools of this process as models and calls need them: looked up by name, described, classed."""

from collections.abc import Mapping
from functools import lru_cache

from connectors.protocols import EffectClass, Reconciler, Tool, ToolSpec
from connectors.tools.registry import specs_for
from services.runtime.tool_calls import parsed

KEPT_SPECS = 1_000
"""Lists of granted tools whose descriptions are kept; agents are few, and building them costs per turn."""


class Shelf:
    """Protocol services.runtime.model_calls.ToolShelf over built tools."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self._tools = tools
        # A look at a runtime protocol takes 10 microseconds.
        self._reconcilable = frozenset(name for name, tool in tools.items() if isinstance(tool, Reconciler))
        self.specs = lru_cache(maxsize=KEPT_SPECS)(self._specs)

    def _specs(self, names: tuple[str, ...]) -> tuple[ToolSpec, ...]:
        return specs_for(self._tools, names)

    def find(self, name: str) -> Tool | None:
        return self._tools.get(name)

    def effect_class(self, name: str, input_json: str) -> str:
        """The class of a call as the model wrote it. An unknown tool has no effect, so it is pure."""
        tool = self._tools.get(name)
        if tool is None:
            return EffectClass.PURE.value
        return tool.effect_class(parsed(input_json)).value

    def is_reconcilable(self, name: str) -> bool:
        """The tool can be asked what became of a lost call."""
        return name in self._reconcilable
