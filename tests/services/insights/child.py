"""Runs insights as a process of its own: `python -m tests.services.insights.child '<settings as JSON>'`.

The same `run_process` and exit as `python -m loomlog.services.insights.main`, with the topic names of a test.
"""

import json
import os
import sys
from dataclasses import replace

from loomlog.connectors.configuration.settings import Settings
from loomlog.connectors.process import logs
from loomlog.services.insights.main import run_process
from loomlog.services.insights.settings import insights_settings

if __name__ == "__main__":
    logs.configure_logging()
    options = json.loads(sys.argv[1])
    settings = Settings(
        kafka=options.pop("bootstrap"),
        insights_port=options.pop("port"),
        schema_registry=options.pop("schema_registry", ""),
    )
    os._exit(run_process(settings, replace(insights_settings(settings), **options)))
