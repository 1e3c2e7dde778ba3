// The records of a run as rows: filtered, routine ones folded, each with one line that says what it holds. Pure.
import { printJson } from "../../exact_json.js";

/** Records that only say what is about to be done; the record that follows says what came of it. */
export const ROUTINE = new Set(["ModelCallRequested", "ToolCallRequested", "ChildRequested", "ChildrenPlanned", "CompactionRequested", "CallWaiting", "WaitReported", "TreeCounted", "ToolReconcileRequested"]);
const BAD = new Set(["RunFailed", "RunRefused", "RunQuarantined", "ModelCallFailed", "CompactionFailed", "CommandRefused"]);
const WARN = new Set(["RunCancelled", "TurnCancelled", "LimitReached", "ModelSwitched", "FallbackSuppressed", "RunPauseRequested", "RunPaused", "CallNotBegun", "ToolOutcomeAsked"]);
const LINE_MAX = 200;
/** In place of a type: every record that says that something went wrong or was held back. */
export const PROBLEMS = "problems";

/**
 * @typedef {{kind: "record", key: string, event: any, newTerm: boolean, sinceMs: number}} RecordRow newTerm: another owner than the record before
 * @typedef {{kind: "fold", key: string, events: any[]}} FoldRow
 */

/** Texts that a search looks through, made once for each record. @type {WeakMap<any, string>} */
const texts = new WeakMap();

/** @param {any} event */
function textOf(event) {
  let text = texts.get(event);
  if (text === undefined) {
    text = `${event.seq} ${event.type} ${printJson(event.payload)} ${event.cause_id ?? ""}`.toLowerCase();
    texts.set(event, text);
  }
  return text;
}

/**
 * @param {any[]} events in the order of seq
 * @param {{type?: string, text?: string, isFolded?: boolean, opened?: Set<string>, kept?: number}} [filter]
 *   isFolded: routine records in a row become one line, unless it is opened or holds the record `kept`
 * @returns {(RecordRow | FoldRow)[]}
 */
export function rowsOf(events, { type = "", text = "", isFolded = false, opened = new Set(), kept = 0 } = {}) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {(RecordRow | FoldRow)[]} */
  const rows = [];
  let term = events[0]?.term;
  let before = NaN;
  /** Routine records in a row: they are one line, or (opened) rows of their own. @type {{row: FoldRow | null} | null} */
  let group = null;
  for (const event of events) {
    const newTerm = event.term !== term;
    term = event.term;
    const at = Date.parse(event.at);
    const sinceMs = Number.isNaN(before) ? 0 : at - before;
    before = at;
    if (type && (type === PROBLEMS ? !["bad", "warn"].includes(toneOf(event)) : event.type !== type)) continue;
    if (words.length && !words.every((word) => textOf(event).includes(word))) continue;
    if (isFolded && !newTerm && event.seq !== kept && ROUTINE.has(event.type)) {
      if (!group) {
        const key = `f${event.seq}`;
        group = { row: opened.has(key) ? null : { kind: "fold", key, events: [] } };
        if (group.row) rows.push(group.row);
      }
      if (group.row) {
        group.row.events.push(event);
        continue;
      }
    } else group = null;
    rows.push({ kind: "record", key: String(event.seq), event, newTerm, sinceMs });
  }
  return rows;
}

/** "bad", "warn", "good", "info" or "". @param {any} event */
export function toneOf(event) {
  if (BAD.has(event.type) || (event.type === "ToolReturned" && event.payload.is_error)) return "bad";
  if (WARN.has(event.type)) return "warn";
  if (event.type === "RunCompleted") return "good";
  if (event.type === "InputReceived" || event.type === "RunStarted" || event.type.startsWith("Interruption")) return "info";
  return "";
}

const number = (value) => Number(value ?? 0).toLocaleString("en");

/** @type {Record<string, (payload: any) => string>} */
const LINES = {
  RunStarted: (p) => `${p.definition?.name ?? ""}${p.user_id ? ` for ${p.user_id}` : ""}`,
  ModelCallRequested: (p) => `turn ${p.turn}, ${p.provider}/${p.model}${p.attempt > 1 ? `, attempt ${p.attempt}` : ""}`,
  ModelReplied: (p) => `${p.text || ""}${p.tool_calls?.length ? ` [${p.tool_calls.map((call) => call.name).join(", ")}]` : ""} ${number(p.usage?.input_tokens)} in, ${number(p.usage?.output_tokens)} out`,
  ModelCallFailed: (p) => `${p.kind}: ${p.message}`,
  ModelSwitched: (p) => `${p.failed_model} to ${p.model}: ${p.cause || p.reason}`,
  ToolReturned: (p) => `${p.turn}.${p.index} ${p.outcome}: ${p.text || (p.text_blob ? `blob of ${number(p.text_blob.size_bytes)} bytes` : "")}`,
  ToolCallRequested: (p) => `${p.turn}.${p.index} ${p.effect_class}${p.attempt > 1 ? `, attempt ${p.attempt}` : ""}`,
  ChildRequested: (p) => `${p.agent} ${p.child_run_id}`,
  ChildReturned: (p) => `${p.agent} ${p.status}: ${p.text}`,
  ChildrenPlanned: (p) => `${p.op} ${(p.spawns ?? []).map((spawn) => spawn.agent).join(", ")}`,
  ApprovalDecided: (p) => `${p.turn}.${p.index} ${p.verdict?.outcome}${p.verdict?.rule ? ` by ${p.verdict.rule}` : ""}`,
  ApprovalGiven: (p) => `${p.status}: ${(p.votes ?? []).map((vote) => `${vote.by} ${vote.is_approved ? "approved" : "denied"}`).join(", ")}`,
  ApprovalEscalated: (p) => `group ${p.group} is asked`,
  TreeCounted: (p) => `${(p.changes ?? []).length} totals by ${p.run_id}`,
  InterruptionOpened: (p) => p.question,
  InterruptionClosed: (p) => `${p.status}: ${p.answer}`,
  InputReceived: (p) => p.text || (p.text_blob ? `blob of ${number(p.text_blob.size_bytes)} bytes` : ""),
  ContextCompacted: (p) => `${number(p.before_tokens)} to ${number(p.after_tokens)} tokens: ${p.summary}`,
  LimitReached: (p) => p.notice?.message ?? "",
  RunFailed: (p) => `${p.code}: ${p.error}`,
  RunCompleted: (p) => `${p.stop_reason}, ${p.iterations} turns`,
  HookActed: (p) => `${p.act?.name ?? ""}: ${p.act?.act ?? ""} ${p.act?.reason ?? ""}`,
};

/** One line of what a record holds. @param {any} event @returns {string} */
export function lineOf(event) {
  const payload = event.payload ?? {};
  const own = LINES[event.type];
  const text = own
    ? own(payload)
    : Object.entries(payload)
        .filter(([, value]) => value !== "" && value !== null && typeof value !== "object")
        .map(([name, value]) => `${name} ${value}`)
        .join(", ");
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > LINE_MAX ? `${line.slice(0, LINE_MAX)}…` : line;
}

/** "ModelCallRequested ×2, ToolCallRequested". @param {any[]} events */
export function foldedTypes(events) {
  const counts = new Map();
  for (const event of events) counts.set(event.type, (counts.get(event.type) ?? 0) + 1);
  return [...counts].map(([type, count]) => (count > 1 ? `${type} ×${count}` : type)).join(", ");
}

/**
 * The same record from the command line: with the API, and with loomlog.
 * @param {any} event @param {string} origin such as "https://loomlog.example"
 */
export function commandsOf(event, origin) {
  const place = `${event.topic}/${event.partition}/${event.offset}`;
  return {
    curl: `curl -sH "Authorization: Bearer $LOOMLOG_TOKEN" '${origin}/v1/events/${place}'`,
    cli: `loomlog events get ${place}`,
  };
}
