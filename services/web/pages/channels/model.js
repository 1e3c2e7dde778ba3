// What the pages of channels say and check, without a document.
import { parseJson } from "../../exact_json.js";

/** Messages of one reading. */
export const PAGE = 100;
/** Channels of one broadcast. */
export const BROADCAST_MAX = 32;

/** Where a channel comes from: [tone, word, what it means]. @type {Record<string, [string, string, string]>} */
export const SOURCES = {
  yaml: ["info", "file", "Declared in a configuration file: it is changed there, and the services are started again"],
  runtime: ["", "made here", "Declared while the services run, by this page, the command line or the API"],
  system: ["", "system", "The system publishes what happens to the installation and to runs"],
  orphan: ["warn", "not declared", "It has messages, but nothing declares it any more: they stay until they expire, and are read again once it is declared"],
};

/** Who has a queue of a channel, by its scope. @type {Record<string, string>} */
export const SCOPES = {
  global: "one queue for all tenants",
  tenant: "one queue for the tenant",
  user: "a queue for each user",
  agent: "a queue for each agent",
};

/** Whether a channel has a queue for each user or agent. @param {string} scope */
export const hasQueues = (scope) => scope === "user" || scope === "agent";

/** Who publishes to a channel. @param {{publisher: string, name: string, period: string, scope?: string}} row */
export function publisherOf(row) {
  if (row.publisher !== "system" && !row.name.startsWith("_system/")) return row.scope === "global" && row.publisher !== "any" ? "administrators, agents" : "anyone allowed";
  return row.period ? `system, every ${row.period}` : "system";
}

/** "7 d", "90 s"; no TTL: messages end with the 30 days after which none is kept. @param {number} seconds */
export function formatKept(seconds) {
  if (!seconds) return "30 d";
  for (const [size, unit] of /** @type {[number, string][]} */ ([[86_400, "d"], [3_600, "h"], [60, "min"]])) {
    if (seconds >= size && seconds % size === 0) return `${seconds / size} ${unit}`;
  }
  return `${seconds} s`;
}

/** The value of a payload's text, or why it is none. @param {string} text @returns {{value?: any, problem?: string}} */
export function parsePayload(text) {
  if (!text.trim()) return { problem: "Give a JSON value, such as {\"text\": \"ready\"}." };
  try {
    const value = parseJson(text);
    return value === null ? { problem: "null is no message: any other JSON value is." } : { value };
  } catch (error) {
    return { problem: `This is not JSON: ${error.message}` };
  }
}

/**
 * Rows with the newest first, and what came in, oldest first, in front of them; none twice.
 * @param {any[]} rows @param {any[]} incoming
 */
export function withNewer(rows, incoming) {
  const known = new Set(rows.map((row) => row.id));
  const fresh = incoming.filter((one) => !known.has(one.id) && known.add(one.id));
  return fresh.length ? [...fresh.reverse(), ...rows] : rows;
}

/** The channels that fit the filters. @param {any[]} rows @param {{text: string, scope: string, source: string}} filters */
export function filtered(rows, { text, scope, source }) {
  const wanted = text.trim().toLowerCase();
  return rows.filter(
    (row) => (!scope || row.scope === scope) && (!source || row.source === source) && (!wanted || `${row.name} ${row.description}`.toLowerCase().includes(wanted)),
  );
}

/** The fields of a channel's form that differ from what it is. @param {any} form @param {any} row null for a new one */
export function declarationBody(form, row) {
  /** @type {Record<string, any>} */
  const body = row ? {} : { name: form.name.trim(), scope: form.scope };
  const kept = form.default_ttl.trim();
  const fields = {
    description: form.description,
    semantic: form.semantic,
    default_ttl: /^\d*$/.test(kept) ? Number(kept) : kept,
    max_messages: Number(form.max_messages || 0),
  };
  for (const [key, value] of Object.entries(fields)) {
    if (row ? value !== row[key] : value) body[key] = value;
  }
  return body;
}
