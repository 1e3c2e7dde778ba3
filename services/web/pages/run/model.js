// What the page of a run derives from its records and frames. Values in, values out: nothing of the browser, so `node --test` runs it.

/** Frames of one event have the ids event_seq * 256 + 0, 1, ... */
export const FRAMES_PER_EVENT = 256;

/**
 * @typedef {{position: string, topic: string, partition: number, offset: number, term: number, seq: number, run_id: string, tenant_id: string, type: string, at: string, cause_id: string | null, cause_offset: number | null, stale: boolean, payload: any}} EventRecord
 *   as GET /v1/events gives it
 * @typedef {{id: number, seq: number, type: string, data: any, at: string}} RunFrame
 *   seq: of the event it was made from. at: when it came, RFC 3339; empty for a frame of the past (its record knows the time)
 * @typedef {{text: string, thinking: string, isStale: boolean}} Preview
 *   isStale: the connection broke, and the stream begins the turn again
 * @typedef {{kind: "model" | "tool", turn: number, name: string, id: string, index: number, attempt: number, fromSeq: number, toSeq: number, isOpen: boolean, isError: boolean}} Call
 * @typedef {{turn: number, fromSeq: number, toSeq: number, calls: Call[]}} Turn
 */

/** @type {Preview} */
export const NO_PREVIEW = { text: "", thinking: "", isStale: false };

const ENDS_TURN = new Set(["tool_call", "usage", "turn_cancelled"]);
const BEGINS_ANEW = new Set(["retry", "provider_fallback", "done", "error"]);
/** Frames after which a run sends no more. */
export const RUN_ENDS = new Set(["done", "error"]);

/**
 * Takes what a stream delivered. A stream sends of a turn with previews only the rest of its texts, so the whole texts are put
 * together here, under the ids that a stream of the stored frames would give them.
 *
 * @param {Preview} preview of the turn in progress
 * @param {number} last id of the newest frame that is known
 * @param {{id: string, event: string, data: any}[]} received
 * @param {string} at
 * @returns {{frames: RunFrame[], preview: Preview, last: number}} the new frames only
 */
export function takeFrames(preview, last, received, at) {
  /** @type {RunFrame[]} */
  const frames = [];
  let { text, thinking, isStale } = preview;
  const add = (id, type, data) => {
    if (id <= last) return;
    last = id;
    frames.push({ id, seq: Math.floor(id / FRAMES_PER_EVENT), type, data, at });
  };
  for (const frame of received) {
    const type = frame.event;
    if (!frame.id) {
      if (type !== "text" && type !== "thinking") continue;
      if (isStale) [text, thinking, isStale] = ["", "", false];
      if (type === "text") text += frame.data.text ?? "";
      else thinking += frame.data.text ?? "";
      continue;
    }
    const id = Number(frame.id);
    if (!Number.isFinite(id) || id <= last) continue;
    if (isStale) [text, thinking, isStale] = ["", "", false];
    if (type === "thinking") {
      add(id, type, { ...frame.data, text: thinking + (frame.data.text ?? "") });
      thinking = "";
    } else if (type === "text" || ENDS_TURN.has(type)) {
      const first = Math.floor(id / FRAMES_PER_EVENT) * FRAMES_PER_EVENT;
      // The log keeps the text of a cancelled turn, not its reasoning.
      if (thinking && type !== "turn_cancelled") add(first, "thinking", { type: "thinking", text: thinking });
      thinking = "";
      if (type === "text") add(id, type, { ...frame.data, text: text + (frame.data.text ?? "") });
      else if (text) add(Math.max(first, last + 1), "text", { type: "text", text });
      text = "";
      if (type !== "text") add(id, type, frame.data);
    } else {
      if (BEGINS_ANEW.has(type)) [text, thinking] = ["", ""];
      add(id, type, frame.data);
    }
  }
  const same = text === preview.text && thinking === preview.thinking && isStale === preview.isStale;
  return { frames, preview: same ? preview : { text, thinking, isStale }, last };
}

/**
 * Adds records to those that are known: in the order of their seq, each once, without a gap.
 * @param {EventRecord[]} known @param {EventRecord[]} received
 */
export function appendEvents(known, received) {
  let next = (known[known.length - 1]?.seq ?? 0) + 1;
  const added = [];
  for (const event of received) {
    if (event.stale || event.seq !== next) continue;
    added.push(event);
    next += 1;
  }
  return added.length ? [...known, ...added] : known;
}

/**
 * The turns of a run: where each begins and ends, and its calls of the model and of tools.
 * @param {EventRecord[]} events @returns {Turn[]}
 */
export function turnsOf(events) {
  /** @type {Turn[]} */
  const turns = [];
  /** @type {Map<string, Call>} */
  const open = new Map();
  const names = new Map();
  const begin = (key, call) => {
    open.set(key, call);
    turns[turns.length - 1]?.calls.push(call);
  };
  const end = (key, seq, isError) => {
    const call = open.get(key);
    if (!call) return;
    Object.assign(call, { toSeq: seq, isOpen: false, isError });
    open.delete(key);
  };
  for (const { type, seq, payload } of events) {
    if (type === "ModelCallRequested") {
      const current = turns[turns.length - 1];
      if (!current || payload.turn > current.turn) turns.push({ turn: payload.turn, fromSeq: seq, toSeq: seq, calls: [] });
      for (const key of [...open.keys()]) if (key.startsWith("m")) open.delete(key);
      begin(`m${payload.turn}.${payload.attempt}`, callOf("model", payload, payload.model, "", payload.attempt, seq));
    } else if (type === "ModelReplied" || type === "ModelCallFailed") {
      for (const call of payload.tool_calls ?? []) names.set(call.id, call.name);
      end(`m${payload.turn}.${payload.attempt}`, seq, type === "ModelCallFailed");
    } else if (type === "ToolCallRequested") {
      begin(`t${payload.call_id}`, callOf("tool", payload, names.get(payload.call_id) ?? "", payload.call_id, payload.attempt ?? 1, seq));
    } else if (type === "ToolReturned") {
      end(`t${payload.call_id}`, seq, Boolean(payload.is_error));
    } else if (type === "TurnCancelled") {
      for (const key of [...open.keys()]) end(key, seq, false);
    }
    if (turns.length) turns[turns.length - 1].toSeq = seq;
  }
  return turns;
}

/** @returns {Call} */
function callOf(kind, payload, name, id, attempt, seq) {
  return { kind, turn: payload.turn, name, id, index: payload.index ?? 0, attempt, fromSeq: seq, toSeq: seq, isOpen: true, isError: false };
}

const FAILED = new Set(["ModelCallFailed", "RunFailed", "RunRefused", "RunQuarantined", "CompactionFailed"]);

/** Whether a record says that something went wrong. @param {EventRecord} event */
export const isFailure = (event) => FAILED.has(event.type) || (event.type === "ToolReturned" && Boolean(event.payload.is_error));

/** What is under way at the end of these turns, in words. @param {Turn[]} turns @returns {string} */
export function busyWith(turns) {
  const open = turns[turns.length - 1]?.calls.filter((call) => call.isOpen) ?? [];
  const tools = open.filter((call) => call.kind === "tool").map((call) => call.name || "a tool");
  if (tools.length === 1) return `runs ${tools[0]}`;
  if (tools.length) return `runs ${tools.length} tools: ${[...new Set(tools)].join(", ")}`;
  return open.length ? "waits for the model" : "";
}

/**
 * What a live run waits for that is neither its model nor a tool at work: an icon, a word and why; null when it is at work.
 * @param {any} run @param {EventRecord[]} events
 * @returns {{icon: string, tone: string, word: string, why: string} | null}
 */
export function waitOf(run, events) {
  if (!run || run.status !== "running" || run.quarantined) return null;
  if (run.paused) return { icon: "circle-pause", tone: "warn", word: "paused", why: run.pause_reason ?? "" };
  if (run.awaited_state === "interrupted") return { icon: "message-square", tone: "warn", word: "an answer", why: run.awaited_on ?? "" };
  if (run.parked || run.awaited_state === "awaiting_input") return { icon: "clock", tone: "info", word: "input", why: "Its turn is done; the next message wakes it." };
  const waiting = openWaits(events);
  if (waiting.length) {
    const names = [...new Set(waiting.flatMap((payload) => (payload.queues ?? []).map((queue) => queue.channel)))].filter(Boolean);
    return { icon: "radio", tone: "info", word: names.length ? `a message of ${names.join(", ")}` : "a message", why: `until ${new Date(waiting[0].until_ms).toISOString()}` };
  }
  if ((run.under_way ?? []).some((entry) => entry.startsWith("@"))) return { icon: "network", tone: "info", word: "its sub-agents", why: "" };
  if (run.pause_requested) return { icon: "circle-pause", tone: "warn", word: "pauses before the next model call", why: run.pause_reason ?? "" };
  return null;
}

function openWaits(events) {
  /** @type {Map<string, any>} */
  const open = new Map();
  for (let at = Math.max(0, events.length - 500); at < events.length; at += 1) {
    const { type, payload } = events[at];
    if (type === "CallWaiting") open.set(payload.call_id, payload);
    else if (type === "ToolReturned") open.delete(payload.call_id);
    else if (type === "TurnCancelled") open.clear();
  }
  return [...open.values()];
}

/**
 * Places on the slider: where turns begin and what failed, at most one of a kind for each of `places`.
 * @param {EventRecord[]} events @param {number} places
 * @returns {{at: number, kind: "turn" | "failure", seq: number}[]} at: 0 to 1
 */
export function marksOf(events, places) {
  const marks = new Map();
  const last = Math.max(1, events.length - 1);
  for (const event of events) {
    const kind = isFailure(event) ? "failure" : event.type === "ModelCallRequested" && event.payload.attempt === 1 ? "turn" : "";
    if (!kind) continue;
    const at = (event.seq - 1) / last;
    const key = `${kind}${Math.round(at * places)}`;
    if (!marks.has(key)) marks.set(key, { at, kind, seq: event.seq });
  }
  return [...marks.values()];
}

/**
 * What had happened by a moment.
 * @template {{seq: number}} T
 * @param {T[]} list in the order of seq @param {number | null} at @returns {T[]}
 */
export function upTo(list, at) {
  if (at === null || !list.length || list[list.length - 1].seq <= at) return list;
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].seq <= at) low = middle + 1;
    else high = middle;
  }
  return list.slice(0, low);
}
