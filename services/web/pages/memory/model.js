// What the pages of memory say and compute, without a document.
import { parseJson, printJson } from "../../exact_json.js";

/** Whose memory a scope is. @type {Record<string, {title: string, icon: string, about: string, id: string}>} */
export const SCOPES = {
  agent: { title: "Agents", icon: "bot", about: "What an agent keeps over all its runs.", id: "Name of the agent" },
  user: { title: "Users", icon: "user", about: "What is kept of a user, over all agents.", id: "Id of the user" },
  tenant: { title: "Tenant", icon: "users", about: "What all agents and users of the tenant share.", id: "" },
  run: { title: "Run", icon: "play", about: "The SQL database of a tree of runs, until it ends.", id: "Id of the root run" },
};

/** Fusion of ranks, as POST /v1/_memory/search does it. */
const FUSION_K = 60;

/** @param {string} rest of an address below /memory @returns {{scope: string, id: string} | null} null: no scope is named */
export function placeOfPath(rest) {
  const [scope, ...id] = rest.split("/");
  return scope ? { scope, id: scope === "tenant" ? "" : id.join("/") } : null;
}

/** The path of a scope's page; slashes of an id are escaped. @param {string} scope @param {string} id */
export const pathOf = (scope, id) => `/memory/${encodeURIComponent(scope)}${id && scope !== "tenant" ? `/${encodeURIComponent(id)}` : ""}`;

/** Name of a scope as people say it. @param {string} scope @param {string} id */
export const nameOf = (scope, id) => (scope === "tenant" ? "the tenant's memory" : `${scope} ${id}`);

/** The value of an entry's text, or why it is none. @param {string} text @returns {{value?: any, problem?: string}} */
export function parseValue(text) {
  if (!text.trim()) return { problem: "Give a JSON value, such as {\"colour\": \"red\"}, 12 or \"a text\"." };
  try {
    return { value: parseJson(text) };
  } catch (error) {
    return { problem: `This is not JSON: ${error.message}` };
  }
}

/** Text in which two versions of a value are compared: JSON by lines, a text as it is; "" when there was no value. @param {any} version */
export function comparedText(version) {
  if (!version || !("value" in version)) return "";
  return typeof version.value === "string" ? version.value : printJson(version.value, null, 2);
}

/**
 * Each version, newest first, with the one before it; `before` is null for the first one, undefined where it has not been read.
 * @param {any[]} versions @param {boolean} isComplete
 */
export function withBefore(versions, isComplete) {
  return versions.map((version, at) => ({ version, before: versions[at + 1] ?? (isComplete || !version.previous_revision ? null : undefined) }));
}

const OPERATIONS = {
  set: "set", delete: "deleted", supersede: "superseded", expire: "expired", drop: "dropped with its scope", add: "learned", incr: "counted", merge: "merged into", append_dedupe: "added to the list", bounded_list: "added to the list",
};
/** What a version did. @param {any} version */
export const operationOf = (version) => OPERATIONS[version.op] ?? version.op;

const ORIGINS = { operator: "an operator", agent_explicit: "an agent", consolidator: "the consolidator", service: "the system" };
/** Who made a change, in a few words. @param {any} source */
export function authorOf(source) {
  if (!source || !source.origin) return "";
  if (source.agent) return source.origin === "consolidator" ? `${source.agent} (consolidator)` : source.agent;
  return source.principal || ORIGINS[source.origin] || source.origin;
}

/** The text of a fact. @param {any} value */
export function factText(value) {
  if (typeof value === "string") return value;
  for (const name of ["memory", "text", "fact"]) if (typeof value?.[name] === "string") return value[name];
  return printJson(value) ?? "";
}

/** "/runs/..." where a change is seen in the run that made it. @param {any} source @returns {string} "" when no run made it */
export function runPathOf(source) {
  if (!source?.run_id) return "";
  return `/runs/${encodeURIComponent(source.run_id)}/context${source.turn ? `?turn=${source.turn}` : ""}`;
}

/**
 * What the score of a hit is made of: the parts of both ranks, and what age and use add.
 * @param {any} hit @param {boolean} hasVectors whether the vectors of the scope took part @param {number} semanticWeight
 */
export function scoreParts(hit, hasVectors, semanticWeight = 1) {
  const rankings = hasVectors ? 2 : 1;
  const part = (rank) => (rank ? ((FUSION_K + 1) / (FUSION_K + rank) / rankings) * semanticWeight : 0);
  const words = part(hit.ranks?.lexical);
  const meaning = part(hit.ranks?.semantic);
  const rest = Math.max(0, hit.rank_score - words - meaning);
  return { words, meaning, other: rest < 1e-6 ? 0 : rest, total: hit.rank_score };
}

/** The body of a search; only what differs from the defaults. @param {Record<string, any>} form */
export function searchBody(form) {
  const number = (text) => (String(text ?? "").trim() === "" ? undefined : Number(text));
  /** @type {Record<string, any>} */
  const body = { query: form.query.trim(), scope: form.scope, ...(form.scope_id ? { scope_id: form.scope_id } : {}) };
  if (number(form.top_k) !== undefined) body.top_k = number(form.top_k);
  if (form.prefix) body.prefix = form.prefix;
  if (form.sources?.length) body.sources = form.sources;
  const rank = {};
  for (const name of ["semantic_weight", "recency_weight", "recency_half_life_hours", "frequency_weight"]) {
    if (number(form[name]) !== undefined) rank[name] = number(form[name]);
  }
  if (Object.keys(rank).length) body.rank = rank;
  if (form.dedup) body.dedup = { enabled: true, mode: form.dedup, ...(number(form.threshold) === undefined ? {} : { threshold: number(form.threshold) }) };
  return body;
}

/**
 * A text in pieces, those that are words of the query marked. A word counts when one begins with the other and they share at
 * least three characters, which is about what stems do.
 * @param {string} text @param {string} query @returns {{text: string, isMarked: boolean}[]}
 */
export function marked(text, query) {
  const words = (query.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).filter((word) => word.length > 1);
  if (!words.length) return [{ text, isMarked: false }];
  const isWord = (token) => {
    const lower = token.toLowerCase();
    return words.some((word) => lower === word || (Math.min(lower.length, word.length) >= 3 && Math.abs(lower.length - word.length) <= 3 && (lower.startsWith(word) || word.startsWith(lower))));
  };
  const pieces = [];
  for (const token of text.split(/([\p{L}\p{N}]+)/u)) {
    if (!token) continue;
    const isMarked = /[\p{L}\p{N}]/u.test(token) && isWord(token);
    const last = pieces.at(-1);
    if (last && last.isMarked === isMarked) last.text += token;
    else pieces.push({ text: token, isMarked });
  }
  return pieces;
}

/** The type of a column from its values: what SQLite calls them. @param {any[][]} rows @param {number} column */
export function columnType(rows, column) {
  const types = new Set(rows.map((row) => typeOf(row[column])).filter(Boolean));
  if (!types.size) return rows.length ? "null" : "";
  if (types.size === 2 && types.has("integer") && types.has("real")) return "real";
  return types.size === 1 ? [...types][0] : "mixed";
}

function typeOf(value) {
  if (value === null) return "";
  if (typeof value === "number") return Number.isInteger(value) ? "integer" : "real";
  if (value === "Infinity" || value === "-Infinity") return "real";
  if (typeof value === "object") return "blob";
  return "text";
}

/** An SQL name that is always one name. @param {string} name */
export const quoted = (name) => `"${name.replaceAll('"', '""')}"`;

/** The statements of a history with a new one in front; each once, at most `most`. @param {string[]} statements @param {string} statement */
export const remembered = (statements, statement, most = 50) => [statement, ...statements.filter((one) => one !== statement)].slice(0, most);

/** Changes with the newest first, none twice, at most `most`. @param {any[]} rows @param {any[]} incoming oldest first */
export function withChanges(rows, incoming, most = 1_000) {
  const known = new Set(rows.map((row) => row.seq));
  const fresh = incoming.filter((one) => !known.has(one.seq) && known.add(one.seq));
  return fresh.length ? [...fresh.reverse(), ...rows].slice(0, most) : rows;
}

/** Share of a quota in per cent, at most 100; null without a quota. @param {{bytes: number, quota_bytes: number}} usage */
export const share = (usage) => (usage.quota_bytes > 0 ? Math.min(100, (100 * usage.bytes) / usage.quota_bytes) : null);
