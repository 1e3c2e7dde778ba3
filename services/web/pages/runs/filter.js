// The filter of the list of runs: read from the address, as a query of the API, as a `where` of a bulk order, and whether a run fits it.
import { shellWord } from "../../values.js";

/** Statuses of the API, in the order of the buttons. */
export const STATUSES = ["running", "completed", "failed", "cancelled"];
/** What a live run may wait for: key of GET /v1/runs/counts -> words. */
export const WAITS = {
  interrupted: "wait for an answer",
  awaiting_input: "wait for input",
  pause_requested: "paused",
  quarantined: "quarantined",
};
/** Parameters of the address -> labels. `status` and `waits` have buttons of their own. */
export const FIELDS = {
  agent: "Agent",
  user_id: "User",
  tenant: "Tenant",
  session_id: "Session",
  root: "Tree of the run",
  def_id: "Version",
  id: "Id begins or ends with",
  from: "Started from",
  to: "Started before",
};
const UNIT_MS = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * @typedef {{status: string, waits: string, agent: string, user_id: string, tenant: string, session_id: string, root: string, def_id: string, id: string, from: string, to: string}} Filter
 *   from, to: RFC 3339, or how long ago: "15m", "24h", "7d"
 */

/** @param {URLSearchParams} query @returns {Filter} */
export function filterOf(query) {
  const filter = /** @type {any} */ ({ status: query.get("status") ?? "", waits: query.get("waits") ?? "" });
  for (const name of Object.keys(FIELDS)) filter[name] = query.get(name) ?? "";
  if (!(filter.waits in WAITS)) filter.waits = "";
  if (!filter.root) filter.root = query.get("root_run_id") ?? "";
  if (!filter.id) filter.id = query.get("prefix") ?? ""; // of addresses and saved filters from before an end was enough
  return filter;
}

/** The address of a filter, in one order, so that equal filters have equal addresses. @param {Filter} filter */
export function addressOf(filter) {
  const query = new URLSearchParams();
  for (const name of ["status", "waits", ...Object.keys(FIELDS)]) if (filter[name]) query.set(name, filter[name]);
  return query.toString();
}

/** A moment as RFC 3339; a text such as "24h" is counted back from `now`. @param {string} text @param {number} now milliseconds */
export function momentOf(text, now) {
  const ago = /^(\d{1,6})([mhd])$/.exec(text);
  if (ago) return new Date(now - Number(ago[1]) * UNIT_MS[ago[2]]).toISOString();
  return text;
}

/** The query of GET /v1/runs. @param {Filter} filter @param {number} now */
export function apiQueryOf(filter, now) {
  return {
    status: filter.waits ? "" : filter.status,
    waiting: filter.waits,
    agent: filter.agent,
    user_id: filter.user_id,
    tenant: filter.tenant,
    session_id: filter.session_id,
    root_run_id: filter.root,
    def_id: filter.def_id,
    id_part: filter.id,
    from: momentOf(filter.from, now),
    to: momentOf(filter.to, now),
  };
}

/** Whether a run waits for what the filter says. @param {any} run @param {string} waits */
export function waitsFor(run, waits) {
  switch (waits) {
    case "interrupted":
      return run.awaited_state === "interrupted";
    case "awaiting_input":
      return run.parked && run.status === "running";
    case "pause_requested":
      return run.pause_requested && run.status === "running";
    case "quarantined":
      return run.quarantined && run.status === "running";
    default:
      return true;
  }
}

/** Whether a run of a stream's frame belongs to the list. @param {any} run @param {Filter} filter @param {number} now */
export function fits(run, filter, now) {
  const startedAt = new Date(run.started_at).getTime();
  const from = filter.from ? new Date(momentOf(filter.from, now)).getTime() : -Infinity;
  const to = filter.to ? new Date(momentOf(filter.to, now)).getTime() : Infinity;
  return (
    (!filter.status || filter.status === "all" || filter.status.split(",").includes(run.status)) &&
    waitsFor(run, filter.waits) &&
    (!filter.agent || run.agent === filter.agent) &&
    (!filter.user_id || run.user_id === filter.user_id) &&
    (!filter.tenant || run.tenant_id === filter.tenant) &&
    (!filter.session_id || run.session_id === filter.session_id) &&
    (!filter.root || run.root_run_id === filter.root) &&
    (!filter.def_id || run.def_id === filter.def_id) &&
    (!filter.id || [run.run_id, run.agent_id, run.session_id, run.def_id].some((id) => id?.startsWith(filter.id) || id?.endsWith(filter.id))) &&
    startedAt >= from &&
    startedAt < to
  );
}

/**
 * The `where` of POST /v1/runs/bulk, which reaches live runs only, or why the filter cannot be said in it.
 * @param {Filter} filter @param {number} now @returns {{where: string, problem: string}}
 */
export function whereOf(filter, now) {
  const statuses = filter.status ? filter.status.split(",") : ["running"];
  if (!filter.waits && filter.status !== "all" && !statuses.includes("running")) return { where: "", problem: "runs that have ended cannot be paused, resumed or cancelled" };
  const status = { "": "running", awaiting_input: "parked", pause_requested: "paused", quarantined: "quarantined" }[filter.waits];
  if (status === undefined) return { where: "", problem: "of runs that wait for an answer" };
  for (const name of ["root", "def_id", "id"]) if (filter[name]) return { where: "", problem: `by "${FIELDS[name]}"` };
  const parts = [`status=${status}`];
  for (const name of ["agent", "tenant", "user_id", "session_id"]) {
    if (!filter[name]) continue;
    if (/[,\s]/.test(filter[name])) return { where: "", problem: `by "${FIELDS[name]}" with a comma or a space` };
    parts.push(`${name}=${filter[name]}`);
  }
  for (const [name, key] of [["from", "newer_than"], ["to", "older_than"]]) {
    if (!filter[name]) continue;
    const seconds = Math.round((now - new Date(momentOf(filter[name], now)).getTime()) / 1_000);
    if (!(seconds > 0)) return { where: "", problem: `by a "${FIELDS[name]}" that is not in the past` };
    parts.push(`${key}=${seconds}s`);
  }
  return { where: parts.join(","), problem: "" };
}

/** A filter as a command line. @param {Filter} filter @param {number} now */
export function commandOf(filter, now) {
  const parts = ["loomlog runs ls"];
  const query = apiQueryOf(filter, now);
  for (const [name, option] of Object.entries({ status: "--status", agent: "--agent", session_id: "--session", user_id: "--user", tenant: "--tenant", from: "--since", to: "--until" })) {
    if (query[name]) parts.push(option, shellWord(query[name]));
  }
  return parts.join(" ");
}
