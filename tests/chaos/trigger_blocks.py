"""The agents, channels, schedule and webhook of the load, as the configuration file of a campaign has them.

Before: stack. After: triggers.
"""

RESEARCHER, EDITOR = "researcher", "editor"
FIRST, SECOND = "research-done", "editing-done"
CHANNELS_MAX = 400
"""Pairs of a campaign that have a channel; further ones are not started."""
SCHEDULE, WEBHOOK = "ticker", "knocks"
TOKEN_ENV, TOKEN = "LOOMLOG_KNOCKS_TOKEN", "struck"
CONFIGURATION = f"""\
scheduled_runs:
  {SCHEDULE}:
    enabled: true
    agent: sprinter
    schedule: "@every 1s"
    overlap: allow
    prompt: [{{ role: user, content: [{{ type: trusted-text, text: "tick" }}] }}]
webhooks:
  {WEBHOOK}:
    enabled: true
    agent: sprinter
    payload_mapping: {{ goal: $.goal }}
    auth: {{ kind: bearer, bearer_token_env: {TOKEN_ENV}, delivery_id_header: X-Delivery-Id }}
    rate_limit: {{ requests_per_minute: 1000000, burst: 1000000 }}
channels:
""" + "".join(
    f"  {stage}/c{number}: {{ scope: tenant }}\n" for number in range(CHANNELS_MAX) for stage in (FIRST, SECOND)
)
AGENTS = """\
  researcher:
    provider: mock
    model: mock-researcher
    tools: [Memory, Channel]
    memory_scopes: [user]
    disable_context: true
    system_prompt: "You find out."
    channels: { publish: ["research-done/*"], subscribe: [] }
  editor:
    provider: mock
    model: mock-editor
    tools: [Memory, Channel, Context]
    memory_scopes: [user]
    system_prompt: "You wait, and go on."
    channels: { publish: ["editing-done/*"], subscribe: ["research-done/*"] }
"""
