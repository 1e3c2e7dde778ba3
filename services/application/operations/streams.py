"""Access to streams and files, which are no operations: an operation has one record in and one out. Pure.

Each transport serves them in a form of its own, and asks for this access before it reads a request
(services/application/authentication.py). The use cases behind them ask nothing more.

Before: the tables of routes and RPCs, and the operations of MCP that wait for a run. After: the use cases of
services/application.
"""

from loomlog.services.core.access.rules import own_data, requires
from loomlog.services.core.access.scopes import ADMIN, RUNS_CREATE, RUNS_READ, TENANT

START_RUN = own_data(RUNS_CREATE)
"""Also a further run of a session. Its stream is part of the answer, so it needs no right to read."""
FORK_RUN = own_data(RUNS_CREATE, RUNS_READ)
"""A fork exposes the content of its origin."""
FOLLOW_RUN = own_data(RUNS_READ)
WATCH_RUNS = own_data(RUNS_READ)
EXPORT_RUN = own_data(RUNS_READ)
IMPORT_RUN = requires(TENANT)
VERIFY_LOG = requires(ADMIN)
READ_STATE_FILE = requires(ADMIN)
"""The content of a stored state file, which MCP and gRPC have in a message."""
