// Records and topics of the log as the page shows them: places, one line of each, links, bytes. Pure.
import { lineOf as lineOfEvent } from "../run/records.js";

const UNIT_MS = { s: 1_000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 };
const LINE_MAX = 200;

/**
 * Where to begin to read, as a person types it: an offset, an age ("15m", "2h ago"), a time of today ("10:30"), or a date with a time.
 * Times without a zone are local.
 * @param {string} text @param {number} nowMs
 * @returns {{from?: string, problem?: string}} from: an offset, or a time in RFC 3339
 */
export function parsePlace(text, nowMs) {
  const place = text.trim();
  if (/^\d{1,15}$/.test(place)) return { from: String(Number(place)) };
  const age = /^(\d{1,6})\s*(s|m|min|h|d|w)(\s+ago)?$/.exec(place);
  if (age) return { from: new Date(nowMs - Number(age[1]) * UNIT_MS[age[2]]).toISOString() };
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(place);
  if (clock && Number(clock[1]) < 24 && Number(clock[2]) < 60 && Number(clock[3] ?? 0) < 60) {
    const at = new Date(nowMs);
    at.setHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), 0);
    if (at.getTime() > nowMs) at.setDate(at.getDate() - 1);
    return { from: at.toISOString() };
  }
  // Only forms that name a whole date: Date.parse takes much that a person did not mean, such as "5".
  if (/^\d{4}-\d{2}-\d{2}([T ]\d{1,2}:\d{2}.*)?$/.test(place)) {
    const at = new Date(place.length === 10 ? `${place}T00:00` : place.replace(/^(\S+) (\d):/, "$1 0$2:").replace(" ", "T"));
    if (!Number.isNaN(at.getTime())) return { from: at.toISOString() };
  }
  return { problem: "Give an offset (1200), an age (15m, 2h, 7d), a time (10:30) or a date (2026-01-31 12:00)." };
}

/** Whether a `from` of the address is an offset. @param {string | null} from */
export const isOffset = (from) => /^\d+$/.test(from ?? "");

/** One line of what a record holds. @param {any} record */
export function lineOf(record) {
  if (record.kind === "unreadable") return cut(record.error ?? "its bytes cannot be decoded");
  if (record.kind === "claim") return claimText(record);
  return lineOfEvent(record);
}

/** What a claim says: who owns the partition from here on. @param {any} record */
export function claimText(record) {
  const { owner, reason } = record.payload;
  return `Term ${record.term_in_force} begins${owner ? `: ${owner} owns the partition` : ""}${reason ? ` (${reason})` : ""}`;
}

/** Why readers ignore a stale record. @param {any} record */
export const whyStale = (record) =>
  `Written in term ${record.term ?? "none"} after term ${record.term_in_force} had begun: its writer had lost the partition. Readers ignore it.`;

const cut = (text) => (text.length > LINE_MAX ? `${text.slice(0, LINE_MAX)}…` : text);

/**
 * The page of a run or of an aggregate, below /ui; null when it has none.
 * @param {string | null} id "r_…", or "<family>:<tenant>/<name>" whose name may have escaped parts
 * @param {number | null} [seq] of a record of the run that is shown at once
 * @returns {{title: string, path: string, query: Record<string, any>} | null}
 */
export function placeOfAggregate(id, seq = null) {
  if (!id) return null;
  if (/^r(un)?_/.test(id)) return { title: "the run", path: `/runs/${encodeURIComponent(id)}/events`, query: { seq } };
  const parts = /^(\w+):([^/]*)\/(.+)$/s.exec(id);
  if (!parts) return null;
  const [, family, tenant, rest] = parts;
  const [first, ...others] = rest.split("/").map(unescaped);
  const name = [first, ...others].join("/");
  if (family === "memory") return { title: "the memory", path: `/memory/${encodeURIComponent(first)}${others.length && first !== "tenant" ? `/${encodeURIComponent(others.join("/"))}` : ""}`, query: { tenant } };
  if (family === "channel") return { title: "the channel", path: `/channels/${segments(first)}`, query: { tenant, scope_id: others.slice(1).join("/") } };
  if (family === "schedule") return { title: "the schedule", path: `/schedules/${encodeURIComponent(name)}`, query: { tenant } };
  if (family === "webhook") return { title: "the webhook", path: `/webhooks/${segments([tenant, name].filter(Boolean).join("/"))}`, query: {} };
  if (family === "definition" && others.length) return { title: "the definition", path: `/library/${encodeURIComponent(first)}/${segments(others.join("/"))}`, query: { tenant } };
  if (family === "budget") return { title: "the limits", path: "/operations/limits", query: {} };
  return { title: `the ${family}`, path: `/entities/${encodeURIComponent(family)}`, query: { id: name, tenant } };
}

const segments = (name) => name.split("/").map(encodeURIComponent).join("/");

function unescaped(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/**
 * What caused a record: the place of the command, and the run whose call gave it.
 * @param {any} record
 * @returns {{topic: string, partition: number, offset: number} | null}
 */
export function placeOfCause(record) {
  if (record.cause_offset === null || !/\.events$/.test(record.topic)) return null;
  return { topic: record.topic.replace(/events$/, "commands"), partition: record.partition, offset: record.cause_offset };
}

/** The run that a cause's id names: a start, or a tool call "r_…:turn.index". @param {string | null} cause */
export const runOfCause = (cause) => /^(r_[0-9a-z]+)(?::|$)/.exec(cause ?? "")?.[1] ?? null;

/** A position "topic/partition:offset" in its parts. @param {string} position */
export function parsePosition(position) {
  const parts = /^([\w.-]+)\/(\d+)[:/](\d+)$/.exec(position);
  return parts ? { topic: parts[1], partition: Number(parts[2]), offset: Number(parts[3]) } : null;
}

const EVENT_TOPICS = ["loom.run.events", "loom.run.commands"];

/**
 * The same record from a command line: with the API, and with loomlog.
 * @param {any} record @param {string} origin such as "https://loomlog.example"
 */
export function commandsOf({ topic, partition, offset }, origin) {
  const path = EVENT_TOPICS.includes(topic) ? `/v1/events/${topic}/${partition}/${offset}` : `/v1/_log/topics/${topic}/${partition}?from=${offset}&limit=1`;
  return { curl: `curl -sH "Authorization: Bearer $LOOMLOG_TOKEN" '${origin}${path}'`, cli: `loomlog events get ${topic}/${partition}/${offset}` };
}

/** As many as fit beside the list, with their characters. */
const HEX_ROW = 8;

/** Bytes of a base64 text. @param {string} text @returns {Uint8Array} */
export const fromBase64 = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
/** Bytes of a hexadecimal text. @param {string} text @returns {Uint8Array} */
export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));

/** "000010  68 65 …  he…" for at most `most` bytes. @param {Uint8Array} bytes @param {number} most */
export function hexDump(bytes, most) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, most); at += HEX_ROW) {
    const row = [...bytes.slice(at, Math.min(at + HEX_ROW, most))];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(HEX_ROW * 3 - 1)}  ${row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : ".")).join("")}`);
  }
  return lines.join("\n");
}

/**
 * Topics that have every word of a search in their name, kind or description.
 * @param {any[]} topics @param {string} text
 */
export function searchTopics(topics, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return topics.filter((topic) => {
    const all = `${topic.name} ${topic.kind.replace("_", " ")} ${topic.about}`.toLowerCase();
    return words.every((word) => all.includes(word));
  });
}

/** How long a topic keeps its records: so long, or so many bytes of a partition. @param {any} topic @param {(bytes: number) => string} formatBytes */
export function retentionOf(topic, formatBytes) {
  const limits = [];
  if (topic.retention_ms !== null) limits.push(periodOf(topic.retention_ms));
  if (topic.retention_bytes !== null) limits.push(formatBytes(topic.retention_bytes));
  if (topic.is_compacted) return limits.length ? `newest of each key, ${limits.join(" or ")}` : "newest of each key";
  return limits.length ? limits.join(" or ") : "for ever";
}

const PERIODS = /** @type {[number, string][]} */ ([[86_400_000, "day"], [3_600_000, "hour"], [60_000, "minute"], [1_000, "second"]]);

function periodOf(ms) {
  for (const [unit, word] of PERIODS) {
    const count = ms / unit;
    if (Number.isInteger(count)) return count === 1 ? `1 ${word}` : `${count} ${word}s`;
  }
  return `${ms} ms`;
}
