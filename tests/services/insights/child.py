"""Runs insights as a process of its own: `python -m tests.services.insights.child '<settings as JSON>'`.

The same `run_process` and the same end as `python -m services.insights.main`, with names of topics that a test chose.
"""

import json
import os
import sys
from dataclasses import replace

from loomlog.connectors.configuration import Settings
from loomlog.connectors.process import logs
from loomlog.services.insights.main import run_process
from loomlog.services.insights.settings import insights_settings

if __name__ == "__main__":
    logs.configure_logging()
    given = json.loads(sys.argv[1])
    settings = Settings(
        kafka=given.pop("bootstrap"),
        insights_port=given.pop("port"),
        schema_registry=given.pop("schema_registry", ""),
    )
    os._exit(run_process(settings, replace(insights_settings(settings), **given)))
