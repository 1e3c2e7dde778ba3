# Every target works from a fresh clone: the environment is made on demand from requirements.lock, with the tools of
# developers from requirements-dev.lock only where a target needs them.
PYTHON ?=
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
TOOLS  := $(VENV)/.installed-tools
DIR    ?= .
ONCE   ?=
SEEDS  ?= 10000
FIRST  ?= 0
PEERS  ?=
CURVES ?=
AGGREGATES ?=
LINES  ?=
KEYS   ?=
VECTORS ?=
ORIGINAL ?=
PICTURES ?=
URL    ?=
TOKEN  ?=
TYPESCRIPT := 5.9.3

.PHONY: help run up down demo test check check-web format schemas bench bench-takeover bench-parked bench-entities bench-definitions bench-memory bench-channels bench-access bench-typed bench-tools bench-approvals try-mcp-servers bench-projections bench-sign-in bench-peers bench-smoke bench-original bench-deaths bench-scale bench-web bench-protocols conformance screenshots diagram flame figures chaos simulate lock clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): requirements.lock
	@$(if $(PYTHON),,deploy/install_missing.sh python)
	@python="$(or $(PYTHON),$$(deploy/choose_python.sh))"; \
	$$python -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "loomlog needs Python 3.11 or newer with the module venv; $$python is not that"; exit 1; }; \
	$$python -m venv $(VENV)
	@echo "installing the pinned dependencies (once, about half a minute)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(TOOLS): $(STAMP) requirements-dev.lock
	@echo "installing the tools of developers (once, about half a minute)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

run: $(STAMP) ## bring everything up, review DIR=. with an agent, stay up (ONCE=1: stop after it)
	@deploy/install_missing.sh maven
	@$(BIN)/loomlog review "$(DIR)" $(if $(ONCE),--once)

up: $(STAMP) ## bring everything up and stay
	@deploy/install_missing.sh maven
	@$(BIN)/loomlog up

down: $(STAMP) ## stop everything
	@$(BIN)/loomlog down

demo: $(STAMP) ## kill a runtime in the middle of a run, and show that nothing was lost or done twice
	@deploy/install_missing.sh maven
	@$(BIN)/loomlog demo

test: $(TOOLS) ## all tests: pure ones, real broker and Postgres, the whole stack
	@deploy/install_missing.sh maven chromium
	@$(BIN)/pytest -n 2 -p tests.sharing --maxfail 25

check: $(TOOLS) ## formatting, lint, types, import rules, generated files
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/mypy --package tests
	@$(BIN)/lint-imports --no-cache
	@$(BIN)/python -m loomlog.schemas.generate --check
	@$(BIN)/python -m loomlog.schemas.generate_messages --check
	@$(BIN)/python -m tests.lint.pointers
	@$(BIN)/python -m tests.lint.words
	@$(BIN)/python -m loomlog.connectors.configuration.document --check
	@$(BIN)/python -m tests.lint.references --check
	@$(BIN)/python -m tests.lint.web_types --check

check-web: ## check the types of the web page (needs Node; nothing else does)
	@command -v npx >/dev/null || { \
	  echo "make check-web needs Node 18 or newer with npx, which is not installed (for example: apt-get install nodejs npm)"; exit 1; }
	@npx --yes --package typescript@$(TYPESCRIPT) --call "node tests/web/check_types.mjs"

format: $(TOOLS) ## format and fix what can be fixed
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

schemas: $(TOOLS) ## write the Python twins of schemas/avro, and the descriptors of schemas/proto
	@$(BIN)/python -m loomlog.schemas.generate
	@$(BIN)/python -m loomlog.schemas.generate_messages

bench: $(TOOLS) ## measure A3x2 through the topic and over HTTP, first tokens, 1,000 streams and cancels
	@$(BIN)/python -m tests.benchmarks.main

bench-takeover: $(TOOLS) ## measure take-overs with a million past events and 1,000 live runs
	@$(BIN)/python -m tests.benchmarks.takeover

bench-parked: $(TOOLS) ## measure what 10,000 parked runs cost in memory and CPU (RUNS=100000), and one that rests in its owner
	@$(BIN)/python -m tests.benchmarks.resting
	@$(BIN)/python -m tests.benchmarks.parked $(if $(RUNS),--runs $(RUNS))

bench-entities: $(TOOLS) ## measure what entity writes cost, and a million aggregates at rest (about 15 minutes; AGGREGATES=0 leaves those out)
	@$(BIN)/python -m tests.benchmarks.entities $(if $(AGGREGATES),--aggregates $(AGGREGATES))

bench-sign-in: $(TOOLS) ## measure what tokens of identity providers cost a request
	@$(BIN)/python -m tests.benchmarks.sign_in

bench-definitions: $(TOOLS) ## measure definitions: resolving, opening, promoting and changing 10,000 of them (LINES=200)
	@$(BIN)/python -m tests.benchmarks.definitions $(if $(LINES),--lines $(LINES))

bench-memory: $(TOOLS) ## measure memory: turns and calls with it, a million keys, 200,000 vectors of one scope (KEYS=0 or VECTORS=0 leaves those out)
	@$(BIN)/python -m tests.benchmarks.memory $(if $(KEYS),--keys $(KEYS)) $(if $(VECTORS),--vectors $(VECTORS))

bench-channels: $(TOOLS) ## measure channels, schedules and webhooks: circuits, publishes, due schedules, deliveries, parked subscribers (PARTS=circuits)
	@$(BIN)/python -m tests.benchmarks.channels $(if $(PARTS),--parts $(PARTS))

bench-tools: $(TOOLS) ## measure tool calls: rules for approvals, and MCP servers over a process and over HTTP
	@$(BIN)/python -m tests.benchmarks.approvals
	@$(BIN)/python -m tests.benchmarks.tools

bench-access: $(TOOLS) ## measure 100,000 minted tokens, revocation under load, erasing 1,000 sessions, the list of a million acts (SESSIONS=100 ACTS=200000; URL=... TOKEN=... AGENT=...: of a running installation)
	@$(BIN)/python -m tests.benchmarks.access
	@$(BIN)/python -m tests.benchmarks.access_stack $(if $(SESSIONS),--sessions $(SESSIONS)) $(if $(URL),--url $(URL) --token $(TOKEN) --agent $(AGENT))
	@$(BIN)/python -m tests.benchmarks.acts $(if $(ACTS),--acts $(ACTS))

bench-approvals: $(TOOLS) ## kill everything while people decide about 1,000 calls; how long it takes (CALLS=1000)
	@APPROVAL_CALLS=$(or $(CALLS),1000) $(BIN)/pytest -n 0 -q -s --timeout 3600 tests/acceptance/test_approvals.py -k killed

try-mcp-servers: $(TOOLS) ## use two MCP servers of the npm registry, files and everything (needs Node; nothing else does)
	@$(BIN)/python -m tests.benchmarks.real_mcp_servers
bench-typed: $(TOOLS) ## measure records: compiling schemas, checking answers, and runs with and without one
	@$(BIN)/python -m tests.benchmarks.typed $(if $(RUNS),--runs $(RUNS))

bench-projections: $(TOOLS) ## measure rebuilds, a lost database and the lag of the read models
	@$(BIN)/python -m tests.benchmarks.projections

bench-peers: $(TOOLS) ## measure A3x2 beside the raw floors, DBOS, LangGraph and Restate, and write docs/BENCHMARKS.md (about 30 minutes)
	@$(BIN)/python -m tests.benchmarks.peers.main --json docs/figures/peers.json $(PEERS)
	@$(BIN)/python -m tests.benchmarks.peers.page

bench-smoke: $(TOOLS) ## fail when ours has become a third slower against the raw Kafka floor (under a minute)
	@$(BIN)/python -m tests.benchmarks.smoke

bench-deaths: $(TOOLS) ## measure for how long no run ends when owners are killed one after the other (4 minutes)
	@$(BIN)/python -m tests.benchmarks.deaths

bench-original: $(TOOLS) ## measure the same requests on a running server of the original beside ours (ORIGINAL=host:port, ORIGINAL_TOKEN; without it ours alone)
	@$(BIN)/python -m tests.benchmarks.original $(if $(ORIGINAL),--original $(ORIGINAL))

bench-scale: $(TOOLS) ## measure how the figures change with partitions, runs, streams, parked runs and the past, and write docs/SCALE.md (25 minutes)
	@$(BIN)/python -m tests.benchmarks.scaling $(if $(CURVES),--curves $(CURVES)); measured=$$?; \
	  $(BIN)/python -m tests.benchmarks.plots && $(BIN)/python -m tests.benchmarks.scale_page && exit $$measured

bench-web: $(TOOLS) ## measure the web page in Chromium: first paint, a run of 5,000 events, tokens, tabs, a list of 100,000 runs (4 minutes; PARTS=paint,run)
	@$(BIN)/python -m tests.benchmarks.web $(if $(PARTS),--parts $(PARTS))

bench-protocols: $(TOOLS) ## measure gRPC and MCP beside HTTP: A3x2, tools/list, a cheap call, 10,000 sessions (7 minutes)
	@$(BIN)/python -m tests.benchmarks.grpc_floor
	@$(BIN)/python -m tests.benchmarks.protocols
	@$(BIN)/python -m tests.benchmarks.mcp_server

conformance: $(TOOLS) ## run the official conformance package of MCP against a stack (needs npx)
	@$(BIN)/python -m tests.acceptance.conformance

screenshots: $(TOOLS) ## take the pictures of the web page in docs/figures, light and dark (PICTURES="run timeline"; look at each afterwards)
	@$(BIN)/python -m tests.browser.screenshots $(PICTURES)

diagram: $(TOOLS) ## draw the state diagram of a run in docs/ARCHITECTURE.md from the transitions the tests take
	@$(BIN)/python -m tests.services.core.run.draw_diagram

flame: $(TOOLS) ## draw where runtime and api spend their time under load, and write docs/SCALE.md (two minutes; root or a ptrace that is allowed)
	@$(BIN)/python -m tests.benchmarks.flame
	@$(BIN)/python -m tests.benchmarks.scale_page

figures: $(TOOLS) ## measure all of docs/RELIABILITY.md again on a quiet machine, and write it (about 50 minutes)
	@mkdir -p docs/figures
	@$(BIN)/python -m tests.simulation.main --seeds 10000 --json docs/figures/simulation.json
	@$(BIN)/python -m tests.benchmarks.projections --json docs/figures/projections.json
	@$(BIN)/python -m tests.benchmarks.takeover --json docs/figures/takeover.json
	@$(BIN)/python -m tests.chaos.main --minutes 4 --brokers 1 --session 3 --no-standby --targets runtime,runtime,runtime,runtime --json docs/figures/group.json
	@$(BIN)/python -m tests.chaos.main --minutes 10 --session 3 --json docs/figures/chaos.json
	@$(BIN)/python -m tests.figures

chaos: $(TOOLS) ## strike everything under load and check the log (MINUTES=10, or RUNS=200 ROUNDS=1; PAGE=file writes it)
	@$(BIN)/python -m tests.chaos.main $(if $(PAGE),--session 3 --write $(PAGE))

simulate: $(TOOLS) ## the whole pipeline on a simulated log, clock and network (SEEDS=10000, FIRST=0)
	@$(BIN)/python -m tests.simulation.main --seeds $(SEEDS) --first $(FIRST)

lock: $(TOOLS) ## pin the newest allowed versions in requirements.lock and requirements-dev.lock
	@$(BIN)/uv pip compile pyproject.toml --all-extras --generate-hashes --no-header --quiet --upgrade -o requirements-dev.lock
	@cp requirements-dev.lock requirements.lock # what is there already is kept: both pin the same versions
	@$(BIN)/uv pip compile pyproject.toml --extra local --extra build --generate-hashes --no-header --quiet -o requirements.lock

clean: ## remove the environment and caches; .loomlog (data) stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis
