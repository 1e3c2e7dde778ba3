"""Runs insights as a process of its own: `python -m tests.services.insights.child '<settings as JSON>'`.

The same `run_process` and the same end as `python -m services.insights.main`, with names of topics that a test chose.
"""

import json
import os
import sys

from services.insights.main import run_process
from services.insights.quiet import quiet_logging
from services.insights.settings import Broker, InsightsSettings

if __name__ == "__main__":
    quiet_logging()
    given = json.loads(sys.argv[1])
    broker = Broker(bootstrap=(given.pop("bootstrap"),))
    os._exit(run_process(InsightsSettings(broker=broker, **given)))
