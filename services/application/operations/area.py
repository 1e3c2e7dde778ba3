"""The handlers of an area of operations. Before: handlers.py. After: run_handlers.py and those next to it."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from loomlog.services.core.operations import Handlers

if TYPE_CHECKING:  # it opens these handlers
    from loomlog.services.application.application import Application


class Area(ABC):
    """One method for each operation. All raise Refused."""

    def __init__(self, application: "Application") -> None:
        self._application = application

    @abstractmethod
    def by_operation(self) -> Handlers:
        """Return the handler of each operation."""
