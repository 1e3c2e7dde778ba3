// All calls of the HTTP API. A call returns the decoded answer or throws an ApiError; nothing else calls fetch but stream.js.
import { signal } from "./ui.js";
import { parseJson, printJson } from "./exact_json.js";

/** A refusal of the server, in its words, or a failure to reach it (status 0). */
export class ApiError extends Error {
  /** @param {number} status @param {string} code @param {string} text @param {any} [body] @param {number} [retryAfterS] */
  constructor(status, code, text, body = null, retryAfterS = 0) {
    super(text);
    this.status = status;
    this.code = code;
    this.body = body;
    this.retryAfterS = retryAfterS;
  }
  /** Whether the same call may succeed later. */
  get isTransient() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** Whether the server answers: "ok", "away" (no answer or 5xx of readiness) or "starting". */
export const connection = signal("ok");
/** Set when a call answered 401: the token is not known, or no longer. */
export const signedOut = signal(false);

const POSITION_KEPT_MS = 15_000;
let position = "";
let positionUntil = 0;

/**
 * @param {string} method
 * @param {string} path such as "/v1/runs"
 * @param {{query?: Record<string, any>, body?: any, raw?: BodyInit, headers?: Record<string, string>, signal?: AbortSignal, as?: "json"|"text"|"blob"|"response"}} [options]
 *   `as` is how the answer is read. Reads that follow a write of this page within 15 s wait until the read models include it.
 */
export async function request(method, path, { query = {}, body, raw, headers = {}, signal: aborted, as = "json" } = {}) {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) parameters.append(name, String(one));
  }
  if (method === "GET" && position && Date.now() < positionUntil && path.startsWith("/v1/")) parameters.append("position", position);
  const text = parameters.toString();
  const sent = { accept: as === "json" ? "application/json" : "*/*", ...headers };
  if (body !== undefined) sent["content-type"] = "application/json";
  if (method !== "GET" && !sent["idempotency-key"]) sent["idempotency-key"] = newKey();
  let answer;
  try {
    answer = await fetch(path + (text ? `?${text}` : ""), {
      method,
      headers: sent,
      body: raw ?? (body === undefined ? undefined : printJson(body)),
      signal: aborted,
      credentials: "same-origin",
    });
  } catch (error) {
    if (aborted?.aborted) throw error;
    connection.value = "away";
    throw new ApiError(0, "unreachable", "The server does not answer. It is asked again by itself.");
  }
  if (connection.value !== "ok" && answer.status < 500) connection.value = "ok";
  const reached = answer.headers.get("x-loomlog-position");
  if (reached && method !== "GET") {
    position = reached;
    positionUntil = Date.now() + POSITION_KEPT_MS;
  }
  if (!answer.ok) throw await refusal(answer);
  if (as === "response") return answer;
  if (as === "text") return answer.text();
  if (as === "blob") return answer.blob();
  return answer.status === 204 ? null : parseJson(await answer.text());
}

/** The ApiError of an answer. @param {Response} answer */
export async function refusal(answer) {
  let body = null;
  try {
    body = parseJson(await answer.text());
  } catch {
    // A proxy answered in its own form: the status says enough.
  }
  if (answer.status === 401) signedOut.value = true;
  const away = awayOf(answer.status, body);
  if (away) connection.value = away;
  const text = body?.error ?? body?.message ?? `The server answered ${answer.status} ${answer.statusText}.`;
  return new ApiError(answer.status, body?.code ?? "", text, body, Number(answer.headers.get("retry-after")) || 0);
}

/**
 * What an answer says of the connection: "away" when a proxy answers for a server that it does not reach, "starting" when the server does not
 * reach its log or its read models yet, else "".
 * @param {number} status @param {any} body decoded, null when it is not of our server
 */
export function awayOf(status, body) {
  if (status === 502 || status === 504) return "away";
  if (status !== 503) return "";
  if (body?.code === "starting" || body?.missing) return "starting";
  return body?.code ? "" : "away";
}

/** A key for `idempotency-key`; a page that repeats a call after a failure passes the same one. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return "ui-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * @typedef {Record<string, any>} Query
 * @typedef {Omit<NonNullable<Parameters<typeof request>[2]>, "query" | "body"> & {query?: Query}} Options
 * The answer of a call has the type of the route at its path: `make check-web` reads api_types.d.ts.
 */
/** @template {string} Path @param {Path} path @param {Query} [query] @param {Options} [options] @returns {Promise<Api.Reply<"GET", Path>>} */
export const get = (path, query = {}, options = {}) => request("GET", path, { query, ...options });
/** @template {string} Path @param {Path} path @param {any} [body] @param {Options} [options] @returns {Promise<Api.Reply<"POST", Path>>} */
export const post = (path, body = {}, options = {}) => request("POST", path, { body, ...options });
/** @template {string} Path @param {Path} path @param {any} body @param {Options} [options] @returns {Promise<Api.Reply<"PUT", Path>>} */
export const put = (path, body, options = {}) => request("PUT", path, { body, ...options });
/** @template {string} Path @param {Path} path @param {any} body @param {Options} [options] @returns {Promise<Api.Reply<"PATCH", Path>>} */
export const patch = (path, body, options = {}) => request("PATCH", path, { body, ...options });
/** @template {string} Path @param {Path} path @param {Query} [query] @param {Options} [options] @returns {Promise<Api.Reply<"DELETE", Path>>} */
export const del = (path, query = {}, options = {}) => request("DELETE", path, { query, ...options });
/** A path segment. @returns {string} */
export const seg = (value) => encodeURIComponent(value);
/** A path of several segments, whose slashes stay. */
export const segs = (value) => String(value).split("/").map(encodeURIComponent).join("/");

// ---- the routes, by page; each takes plain values and returns what docs/reference/http.md says ----

export const me = () => get("/v1/_me");
export const loginConfig = () => get("/ui/login-config.json");
/** @returns {Promise<{version: string, build: string}>} */
export const servedVersion = () => request("GET", "/ui/version.json");
export const health = () => get("/healthz");

export const runs = {
  list: (query, options) => get("/v1/runs", query, options),
  counts: (query, options) => get("/v1/runs/counts", query, options),
  one: (run, options) => get(`/v1/runs/${seg(run)}`, {}, options),
  events: (run, query = {}, options = {}) => get("/v1/events", { run_id: run, ...query }, options),
  state: (run, at, options) => get(`/v1/runs/${seg(run)}/state`, { at }, options),
  replay: (run) => get(`/v1/runs/${seg(run)}/replay`),
  diff: (run, other, query = {}) => get(`/v1/runs/${seg(run)}/diff`, { with: other, ...query }),
  blame: (run) => get(`/v1/runs/${seg(run)}/blame`),
  interrupts: (run, query = {}) => get(`/v1/runs/${seg(run)}/interrupts`, query),
  resolve: (run, interrupt, body) => post(`/v1/runs/${seg(run)}/interrupts/${seg(interrupt)}/resolve`, body),
  resolveCall: (run, call, body) => post(`/v1/runs/${seg(run)}/calls/${seg(call)}/resolve`, body),
  input: (run, body) => post(`/v1/runs/${seg(run)}/input`, body),
  cancelTurn: (run, body = {}) => post(`/v1/runs/${seg(run)}/cancel`, body),
  cancel: (agent, body = {}) => post(`/v1/agents/${seg(agent)}/cancel`, body),
  pause: (run, body = {}) => post(`/v1/runs/${seg(run)}/pause`, body),
  resume: (run, body = {}) => post(`/v1/runs/${seg(run)}/resume`, body),
  compact: (run, body = {}) => post(`/v1/runs/${seg(run)}/compact`, body),
  quarantine: (run, body) => post(`/v1/runs/${seg(run)}/quarantine`, body),
  release: (run, body = {}) => post(`/v1/runs/${seg(run)}/release`, body),
  closeResident: (run) => post(`/v1/_resident/${seg(run)}/close`),
  bulk: (body) => post("/v1/runs/bulk", body),
  batch: (body, options) => post("/v1/runs:batch", body, options),
  exportPath: (run) => `/v1/runs/${seg(run)}/export`,
  forkPath: (run) => `/v1/runs/${seg(run)}/fork`,
  /** Every page of a list, up to `most` rows. */
  all: async (query, options, most = 1_000) => {
    const rows = [];
    let cursor = "";
    do {
      const page = await get("/v1/runs", { ...query, limit: 500, cursor }, options);
      rows.push(...page.runs);
      cursor = page.next ?? "";
    } while (cursor && rows.length < most);
    return { runs: rows, isAll: !cursor };
  },
};

export const sessions = {
  transcript: (session, query = {}) => get(`/v1/sessions/${seg(session)}/transcript`, query),
};

export const interrupts = {
  list: (query, options) => get("/v1/interrupts", query, options),
};

export const approvals = {
  show: (run, approval) => get(`/v1/_approvals/${seg(run)}/${seg(approval)}`),
  approve: (run, approval, body) => post(`/v1/_approvals/${seg(run)}/${seg(approval)}/approve`, body),
  deny: (run, approval, body) => post(`/v1/_approvals/${seg(run)}/${seg(approval)}/deny`, body),
};

export const agents = {
  runnable: () => get("/v1/_runnable-agents"),
  one: (name) => get(`/v1/_runnable-agents/${seg(name)}`),
};

/** Definitions of all kinds; `query` may name a tenant (administrators). Shown by pages/library. */
export const library = {
  list: (query, options) => get("/v1/_definitions", query, options),
  at: (query, options) => get("/v1/_definitions/at", query, options),
  version: (id, query = {}, options = {}) => get(`/v1/_definitions/${seg(id)}`, query, options),
  diff: (id, query = {}, options = {}) => get(`/v1/_definitions/${seg(id)}/diff`, query, options),
  lineage: (id, query = {}, options = {}) => get(`/v1/_definitions/${seg(id)}/lineage`, query, options),
  runs: (id, query = {}, options = {}) => get(`/v1/_definitions/${seg(id)}/runs`, query, options),
  apply: (body, query = {}) => post("/v1/_definitions/apply", body, { query }),
  operate: (kind, body, query = {}, options = {}) => post(`/v1/_${seg(kind)}def`, body, { query, ...options }),
  loginToMcpServer: (name, query = {}) => post(`/v1/_mcp_servers/${seg(name)}/login`, {}, { query }),
  names: (kind, query = {}, options = {}) => get(`/v1/_${seg(kind)}def/names`, query, options),
  judgements: (body, query = {}, options = {}) => post("/v1/_evaluation", body, { query, ...options }),
  volumes: (query, options) => get("/v1/_volumes", query, options),
  ephemeralVolumes: (query, options) => get("/v1/_volumes/ephemeral", query, options),
  shelf: (shelf, query = {}, options = {}) => get(`/v1/_library/${seg(shelf)}`, query, options),
};

/** Aggregates of any family, whose routes are made from its declaration. Shown by pages/entities. @returns {string} */
const familyPath = (family) => `/v1/_${seg(family)}`;
export const entities = {
  document: (options) => get("/v1/openapi.json", {}, options),
  list: (family, query, options) => get(familyPath(family), query, options),
  show: (family, query, options) => get(`${familyPath(family)}/show`, query, options),
  question: (path, query, options) => get(path, query, options),
  command: (path, body, query = {}) => post(path, body, { query }),
};

/** Queues of messages; `query` may name a tenant (administrators) and a user or agent (scope_id). Shown by pages/channels. */
export const channels = {
  list: (query, options) => get("/v1/_channels", query, options),
  create: (body, query = {}) => post("/v1/_channels", body, { query }),
  update: (name, body, query = {}) => patch(`/v1/_channels/${seg(name)}`, body, { query }),
  remove: (name, query = {}) => del(`/v1/_channels/${seg(name)}`, query),
  queues: (name, query = {}, options = {}) => get(`/v1/_channels/${seg(name)}/queues`, query, options),
  readers: (name, query = {}, options = {}) => get(`/v1/_channels/${seg(name)}/readers`, query, options),
  peek: (name, query = {}, options = {}) => get(`/v1/_channels/${seg(name)}/peek`, query, options),
  publish: (name, body, query = {}, options = {}) => post(`/v1/_channels/${seg(name)}/publish`, body, { query, ...options }),
  broadcast: (body, query = {}, options = {}) => post("/v1/_channels/_broadcast", body, { query, ...options }),
  ack: (name, body, query = {}) => post(`/v1/_channels/${seg(name)}/ack`, body, { query }),
  purge: (name, query = {}) => post(`/v1/_channels/${seg(name)}/purge`, {}, { query }),
  streamPath: (name, query) => `/v1/_channels/${seg(name)}/stream?${new URLSearchParams(query)}`,
};

/** Runs at given times. Shown by pages/schedules. */
export const schedules = {
  list: (query, options) => get("/v1/_schedules/list-all", { with_state: true, ...query }, options),
  previewTimes: (query, options) => get("/v1/_schedules/preview", query, options),
  state: (id, options) => get(`/v1/_schedules/${seg(id)}/state`, {}, options),
  preview: (id, query = {}, options = {}) => get(`/v1/_schedules/${seg(id)}/preview`, query, options),
  fires: (id, query = {}, options = {}) => get(`/v1/_schedules/${seg(id)}/fires`, query, options),
  runNow: (id) => post(`/v1/_schedules/${seg(id)}/run-now`),
  pause: (id, until = "") => post(`/v1/_schedules/${seg(id)}/pause`, {}, { query: { until } }),
  resume: (id) => post(`/v1/_schedules/${seg(id)}/resume`),
};

/** Requests from outside; `address` is [tenant/]name. Shown by pages/webhooks. */
export const webhooks = {
  recent: (address, query = {}, options = {}) => get(`/v1/_webhooks/${segs(address)}/recent-deliveries`, query, options),
  test: (address, raw, headers) => request("POST", `/v1/_webhooks/${segs(address)}/test`, { raw, headers }),
  replay: (address, delivery) => post(`/v1/_webhooks/${segs(address)}/replay`, { delivery_id: delivery }),
};

/** What agents, users and tenants remember; `query` may name a tenant (administrators). Shown by pages/memory. */
const memoryPath = (scope, id) => `/v1/_memory/scopes/${seg(scope)}/${seg(id || (scope === "tenant" ? "-" : ""))}`;
export const memory = {
  scopeIds: (scope, query = {}, options = {}) => get(`/v1/_memory/scopes/${seg(scope)}`, query, options),
  keys: (scope, id, query = {}, options = {}) => get(`${memoryPath(scope, id)}/keys`, query, options),
  entry: (scope, id, key, query = {}, options = {}) => get(`${memoryPath(scope, id)}/keys/${seg(key)}`, query, options),
  put: (scope, id, key, body, query = {}) => put(`${memoryPath(scope, id)}/keys/${seg(key)}`, body, { query }),
  remove: (scope, id, key, query = {}) => del(`${memoryPath(scope, id)}/keys/${seg(key)}`, query),
  drop: (scope, id, query = {}, options = {}) => del(memoryPath(scope, id), query, options),
  superseded: (query, options) => get("/v1/_memory/superseded", query, options),
  at: (query, options) => get("/v1/_memory/at", query, options),
  usage: (query, options) => get("/v1/_memory/usage", query, options),
  search: (body, query = {}, options = {}) => post("/v1/_memory/search", body, { query, ...options }),
  sql: (body, query = {}) => post("/v1/_memory/sql", body, { query }),
  embedStats: (query, options) => get("/v1/_memory/embed_stats", query, options),
  administer: (operation, query) => post(`/v1/_memory/${operation}`, {}, { query }),
  changesPath: (query) => `/v1/_memory/changes${Object.keys(query).length ? `?${new URLSearchParams(query)}` : ""}`,
};

/** Topics and records, dead letters, verifications and problems of the read models. Shown by pages/log. */
export const log = {
  topics: (options) => get("/v1/_log/topics", {}, options),
  records: (topic, partition, query, options) => get(`/v1/_log/topics/${seg(topic)}/${seg(partition)}`, query, options),
  letters: (query, options) => get("/v1/_dead_letters", query, options),
  letter: (offset, options) => get(`/v1/_dead_letters/${seg(offset)}`, {}, options),
  replay: (offset, body, options) => post(`/v1/_dead_letters/${seg(offset)}/replay`, body, options),
  acknowledge: (offset, body) => post(`/v1/_dead_letters/${seg(offset)}/acknowledge`, body),
  verifyPath: "/v1/_audit/verify",
  checkpoints: (query, options) => get("/v1/_audit/checkpoints", query, options),
  problems: (query, options) => get("/v1/_projections/problems", query, options),
};

/** Live figures and partitions. Shown by pages/activity. */
export const activity = {
  insights: (options) => get("/v1/_insights", {}, options),
  partitions: (query, options) => get("/v1/_partitions", query, options),
  concurrency: (options) => get("/v1/_concurrency/stats", {}, options),
};

/** What was used and what it cost. Shown by pages/usage. */
export const usage = {
  report: (query, options) => get("/v1/_usage", query, options),
};

/** The orders of operators and what they look at first. Shown by pages/operations. */
export const operations = {
  pauses: (options) => get("/v1/_state", {}, options),
  pause: (body) => post("/v1/_pause", body),
  resume: (body) => post("/v1/_resume", body),
  limits: (query, options) => get("/v1/_limits", query, options),
  setLimit: (body) => put("/v1/_limits", body),
  removeLimit: (query) => del("/v1/_limits", query),
  routing: (options) => get("/v1/_routing", {}, options),
  resolver: (options) => get("/v1/_resolver", {}, options),
  probe: () => post("/v1/_resolve/probe"),
  aliases: (options) => get("/v1/_models", {}, options),
  models: (provider, options) => get(`/v1/_providers/${seg(provider)}/models`, {}, options),
  snapshots: (options) => get("/v1/_snapshots", {}, options),
  createSnapshot: (body) => post("/v1/_snapshots", body),
  removeSnapshot: (id) => del(`/v1/_snapshots/${seg(id)}`),
  restoreSnapshot: (id, body) => post(`/v1/_snapshots/${seg(id)}/restore`, body),
  restoreFile: (file, query) => request("POST", "/v1/_snapshots/restore", { query, raw: file, headers: { "content-type": "application/octet-stream" } }),
  snapshotPath: (id, format) => `/v1/_snapshots/${seg(id)}/export?format=${seg(format)}`,
  subjects: (query, options) => get("/v1/_erasure", query, options),
  erase: (body, query) => post("/v1/_erasure", body, { query }),
  acts: (query, options) => get("/v1/_audit", query, options),
  rewrapKeys: () => post("/v1/_erasure/rewrap"),
  ready: (options) => get("/readyz", {}, options),
  checks: (options) => get("/v1/_doctor", {}, options),
  projections: (options) => get("/v1/_projections", {}, options),
  aggregate: (aggregate, options) => get("/v1/_repair", { aggregate }, options),
  repair: (body) => post("/v1/_repair", body),
  presets: (options) => get("/v1/_presets", {}, options),
  preset: (name, options) => get(`/v1/_presets/${seg(name)}`, {}, options),
  environment: (options) => get("/v1/_env_template", {}, { as: "text", ...options }),
  hooks: (options) => get("/v1/hooks", {}, options),
  addHook: (body) => post("/v1/hooks", body),
  removeHook: (id) => del(`/v1/hooks/${seg(id)}`),
};

/** Users, tokens and credentials; `query` may name a tenant (administrators). Shown by pages/access. */
export const access = {
  tenants: (options) => get("/v1/_tenants", {}, options),
  users: (query, options) => get("/v1/_users", query, options),
  user: (subject, query, options) => get(`/v1/_users/${seg(subject)}`, query, options),
  register: (body, query) => post("/v1/_users", body, { query }),
  change: (subject, body, query) => patch(`/v1/_users/${seg(subject)}`, body, { query }),
  remove: (subject, query) => del(`/v1/_users/${seg(subject)}`, query),
  userTokens: (subject, query, options) => get(`/v1/_users/${seg(subject)}/tokens`, query, options),
  mint: (subject, body, query) => post(`/v1/_users/${seg(subject)}/tokens`, body, { query }),
  revoke: (subject, id, query) => del(`/v1/_users/${seg(subject)}/tokens/${seg(id)}`, query),
  tokenNames: (query, options) => get("/v1/_operatortokendef/names", query, options),
  token: (body, options) => post("/v1/_operatortokendef", body, options),
  credential: (body, query, options = {}) => post("/v1/_credentialdef", body, { query, ...options }),
  rewrap: () => post("/v1/_credentialdef/rewrap"),
};
