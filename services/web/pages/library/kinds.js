// The kinds of definitions, in the order in which the library shows them.

/**
 * @typedef {{
 *   kind: string, one: string, many: string, icon: string, what: string, shelf?: string, forksPromote?: boolean, hasRuns?: boolean, canDelete?: boolean,
 *   page?: (name: string) => string, alternatives?: string[][], texts?: Record<string, string>, example: Record<string, any>,
 * }} Kind
 *   shelf: its name in GET /v1/_library, which callers without substrate:tenant may read. forksPromote: a fork becomes active by itself.
 *   page: the page with its live figures. alternatives: groups of keys that exclude each other. texts: long texts and their languages.
 */

/** @type {Kind[]} */
export const KINDS = [
  {
    kind: "agent",
    one: "agent",
    many: "Agents",
    icon: "bot",
    what: "A model with a prompt, tools and limits.",
    shelf: "agents",
    hasRuns: true,
    alternatives: [["provider", "model"], ["tier"]],
    texts: { system_prompt: "", code_body: "javascript" },
    example: { description: "Answers with sources.", tier: "middle", system_prompt: "You answer briefly and name your sources.\n", tools: ["WebSearch", "WebFetch"] },
  },
  {
    kind: "skill",
    one: "skill",
    many: "Skills",
    icon: "scroll-text",
    what: "A text that an agent loads when it needs it, with files.",
    shelf: "skills",
    texts: { body: "" },
    example: { description: "How to cite.", body: "Name the source of every claim, with its address.\n" },
  },
  {
    kind: "team",
    one: "team",
    many: "Teams",
    icon: "users",
    what: "A graph of states that agents act in.",
    canDelete: true,
    example: {
      entry: "write",
      states: [
        { state: "write", handler: { kind: "agent", agent: "writer" } },
        { state: "done", handler: { kind: "terminal" } },
      ],
      transitions: [{ from: "write", to: "done", on: "success" }],
    },
  },
  {
    kind: "mcpserver",
    one: "MCP server",
    many: "MCP servers",
    icon: "network",
    what: "A server whose tools agents may use.",
    shelf: "mcp-servers",
    example: { transport: "http", url: "https://mcp.example.com/mcp", description: "Tickets." },
  },
  {
    kind: "schedule",
    one: "schedule",
    many: "Schedules",
    icon: "calendar-clock",
    what: "Times at which an agent is started.",
    forksPromote: true,
    page: (name) => `/schedules/${encodeURIComponent(name)}`,
    example: { agent: "reporter", schedule: "0 9 * * 1-5", timezone: "Europe/Berlin", prompt: [{ role: "user", content: [{ type: "trusted-text", text: "Write the morning report." }] }] },
  },
  {
    kind: "webhook",
    one: "webhook",
    many: "Webhooks",
    icon: "webhook",
    what: "Requests from outside that start a run or go to a channel.",
    forksPromote: true,
    page: (name) => `/webhooks/${encodeURIComponent(name)}`,
    example: { enabled: true, delivery: "spawn", agent: "triager", auth: { kind: "hmac", signing_secret_env: "ISSUES_SECRET" }, payload_mapping: { goal: "$.issue.title" } },
  },
  {
    kind: "memorybackend",
    one: "memory backend",
    many: "Memory backends",
    icon: "database",
    what: "Where the memory of agents is kept.",
    forksPromote: true,
    example: {
      kind: "remote",
      config: { base_url: "https://memory.example.com", api_key_env: "TEAM_MEMORY_KEY" },
      tenancy_strategy: { kind: "key_per_tenant", env_pattern: "TEAM_MEMORY_KEY_{tenant_id}" },
    },
  },
  {
    kind: "documentsource",
    one: "document source",
    many: "Document sources",
    icon: "file-text",
    what: "Where documents of agents come from.",
    forksPromote: true,
    example: {
      config: { base_url: "https://documents.example.com", api_key_env: "DOCUMENTS_KEY" },
      tenancy_strategy: { kind: "key_per_tenant", env_pattern: "DOCUMENTS_KEY_{tenant_id}" },
    },
  },
  {
    kind: "a2aagent",
    one: "A2A agent",
    many: "A2A agents",
    icon: "external-link",
    what: "An agent of another installation that ours may call.",
    forksPromote: true,
    example: { agent_card_url: "https://agents.example.com/.well-known/agent-card.json" },
  },
  {
    kind: "a2aservercard",
    one: "A2A card",
    many: "A2A cards",
    icon: "layers",
    what: "What other installations see of our agents.",
    forksPromote: true,
    example: { name: "Our agents", description: "", exposed_agents: [{ agent_name: "researcher", skill_id: "research" }] },
  },
];

/** @param {string} name @returns {Kind | null} */
export const kindNamed = (name) => KINDS.find((one) => one.kind === name) ?? null;

/** Path of a definition's page, for `link` and `navigate`. @param {string} kind @param {string} name */
export const definitionPath = (kind, name) => `/library/${kind}/${String(name).split("/").map(encodeURIComponent).join("/")}`;

/** "an agent", "a skill". @param {Kind} kind */
export const oneOf = (kind) => `${/^(a|MCP)/i.test(kind.one) ? "an" : "a"} ${kind.one}`;
