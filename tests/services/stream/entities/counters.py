"""The family of docs/examples/counter, imported from there as any installation would."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4] / "docs" / "examples" / "counter"))

from counter import FAMILY, Counter

__all__ = ["FAMILY", "Counter"]
