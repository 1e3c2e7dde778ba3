// The rows of a run's conversation, from its frames and records. Frames come first and have the whole texts; records add the times,
// the beginning and the sub-agents, which only stored frames tell. Values in, values out: no browser.
import { printJson } from "../../exact_json.js";

/**
 * @typedef {{key: string, seq: number, kind: string, at: string, [name: string]: any}} Row
 *   kind: "system", "origin", "input", "thinking", "text", "tool", "usage", "child", "question", "unknown", "note", "end".
 *   A row that has not changed since `before` is the same object, so that its view is not made anew.
 */

/**
 * @param {import("./model.js").RunFrame[]} frames @param {import("./model.js").EventRecord[]} events dense from seq 1
 * @param {Row[]} [before] rows of an earlier call @returns {Row[]}
 */
export function rowsOf(frames, events, before = []) {
  /** @type {Row[]} */
  const rows = [];
  /** @type {Map<string, Row>} */
  const byKey = new Map();
  /** @type {Map<string, string>} callId -> key of its newest row: providers may give an id twice in a run */
  const calls = new Map();
  const timeOf = (seq) => events[seq - 1]?.at ?? "";
  const add = (row) => {
    if (byKey.has(row.key)) return;
    byKey.set(row.key, row);
    rows.push(row);
  };

  const takeFrame = (frame) => {
    const { id, seq, type, data } = frame;
    const at = timeOf(seq) || frame.at;
    const base = { key: String(id), seq, at };
    switch (type) {
      case "agent":
      case "session":
      case "started":
      case "system_prompt":
        return;
      case "steer":
      case "user_input":
        return add({ ...base, kind: "input", key: seq === 1 ? "prompt" : base.key, text: data.user_input?.text ?? "", source: seq === 1 ? "" : (data.user_input?.source ?? ""), images: seq === 1 ? imagesOf(events[0]?.payload?.segments) : 0, isUnavailable: Boolean(data.text_unavailable) });
      case "thinking":
      case "text":
        return add({ ...base, kind: type, text: data.text ?? "", isUnavailable: Boolean(data.text_unavailable) });
      case "tool_call": {
        calls.set(data.tool_use.id, base.key);
        return add({ ...base, kind: "tool", callId: data.tool_use.id, name: data.tool_use.name, input: data.tool_use.input, state: "open", text: "", resultSeq: 0, returnedAt: "" });
      }
      case "tool_result": {
        const use = data.tool_use ?? {};
        let row = byKey.get(calls.get(use.id) ?? "");
        if (!row || row.resultSeq) {
          row = { ...base, kind: "tool", callId: use.id ?? "", name: use.name ?? "", input: use.input };
          add(row);
        }
        const state = data.outcome === "outcome_unknown" ? "unknown" : data.is_error ? "error" : "ok";
        return void Object.assign(row, { state, text: data.text ?? "", resultSeq: seq, returnedAt: at, settledBy: data.settled_by ?? "", isUnavailable: Boolean(data.text_unavailable) });
      }
      case "usage": {
        // It heads the turn that it counts.
        const row = { ...base, kind: "usage", usage: data.usage ?? {}, turn: events[seq - 1]?.payload?.turn ?? 0, durationMs: events[seq - 1]?.payload?.duration_ms ?? 0 };
        add(row);
        let first = rows.length - 1;
        while (first > 0 && rows[first - 1].seq === seq) first -= 1;
        if (rows[rows.length - 1] === row) rows.splice(first, 0, .../** @type {any[]} */ (rows.splice(-1)));
        return;
      }
      case "spawn_child_started":
        return childStarted(seq, at, data.spawn_child);
      case "spawn_child_result":
        return childReturned(seq, at, { ...data.spawn_child, status: data.spawn_child.ok ? "completed" : "failed" });
      case "interruption_pending":
        return add({ ...base, kind: "question", key: `question-${data.interruption.interrupt_id}`, ask: data.interruption, answer: null });
      case "interruption_resolved": {
        const row = byKey.get(`question-${data.interruption.interrupt_id}`);
        if (row) return void Object.assign(row, { answer: data.interruption, answeredAt: at });
        return add({ ...base, kind: "note", ...noteOf(type, data) });
      }
      case "outcome_unknown": {
        const asked = data.outcome_unknown ?? {};
        return add({ ...base, kind: "unknown", call: asked.call ?? "", callId: asked.id ?? "", name: asked.name ?? "", reason: asked.reason ?? "", isSettled: false });
      }
      case "done":
      case "error":
        return add({ ...base, kind: "end", isError: type === "error", text: type === "error" ? (data.error ?? "") : (data.stop_reason ?? ""), usage: data.usage ?? null });
      default:
        return add({ ...base, kind: "note", ...noteOf(type, data) });
    }
  };

  const childStarted = (seq, at, child) => add({ key: `child-${child.run_id}`, seq, at, kind: "child", runId: child.run_id, agent: child.agent, isResult: false });
  const childReturned = (seq, at, child) =>
    add({ key: `child-${child.run_id}-${seq}`, seq, at, kind: "child", runId: child.run_id, agent: child.agent, isResult: true, status: child.status, text: child.output ?? child.error ?? "" });

  const takeEvent = ({ seq, at, type, payload }) => {
    if (type === "RunStarted") {
      const { definition, continues, forked_from: fork, imported_from: origin } = payload;
      if (fork) add({ key: "fork", seq, at, kind: "origin", how: "fork", runId: fork.run_id, untilSeq: fork.seq });
      if (continues) add({ key: "continues", seq, at, kind: "origin", how: "continues", runId: continues.run_id });
      if (origin) add({ key: "import", seq, at, kind: "origin", how: "import", runId: "" });
      if (definition?.system_prompt) add({ key: "system", seq, at, kind: "system", text: definition.system_prompt, agent: definition.name });
      const text = userText(payload.segments);
      if ((text || imagesOf(payload.segments)) && !hasPrompt) add({ key: "prompt", seq, at, kind: "input", text, source: "", images: imagesOf(payload.segments), isUnavailable: false });
    } else if (type === "ModelCallFailed") {
      const call = `${payload.provider}/${payload.model}, turn ${payload.turn}, attempt ${payload.attempt}`;
      add({ key: `failed-${seq}`, seq, at, kind: "note", type, icon: "circle-alert", tone: "bad", title: "A model call failed", text: joined(payload.message || payload.kind, call), facts: null });
    } else if (type === "RunPauseRequested") {
      add({ key: `pause-${seq}`, seq, at, kind: "note", type, icon: "circle-pause", tone: "warn", title: "A pause was asked for", text: joined(payload.by ? `by ${payload.by}` : "", payload.reason), facts: null });
    } else if (type === "ChildRequested") {
      if (payload.child_agent_id) childStarted(seq, at, { run_id: payload.child_run_id, agent: payload.agent });
    } else if (type === "ChildReturned") {
      childReturned(seq, at, { run_id: payload.child_run_id, agent: payload.agent, status: payload.status, output: payload.text });
    }
  };

  let hasPrompt = false;
  for (const frame of frames) {
    if (frame.seq > 1) break;
    hasPrompt = hasPrompt || frame.type === "steer" || frame.type === "user_input";
  }
  let next = 0;
  const takeEventsBefore = (seq) => {
    for (; next < events.length && events[next].seq < seq; next += 1) if (FROM_RECORDS.has(events[next].type)) takeEvent(events[next]);
  };
  for (const frame of frames) {
    // The beginning stands before its first frame; a sub-agent at its own place.
    takeEventsBefore(frame.seq === 1 ? 2 : frame.seq);
    takeFrame(frame);
  }
  takeEventsBefore(Infinity);
  for (const row of rows) {
    if (row.kind === "unknown") row.isSettled = Boolean(byKey.get(calls.get(row.callId) ?? "")?.resultSeq);
    if (row.kind === "tool" && row.state === "open") row.durationMs = 0;
    else if (row.kind === "tool") row.durationMs = events[row.resultSeq - 1]?.payload?.duration_ms ?? 0;
  }
  return reuse(before, rows);
}

const FROM_RECORDS = new Set(["RunStarted", "ModelCallFailed", "RunPauseRequested", "ChildRequested", "ChildReturned"]);

/** Rows of before where nothing has changed. @param {Row[]} before @param {Row[]} rows */
function reuse(before, rows) {
  if (!before.length) return rows;
  const known = new Map(before.map((row) => [row.key, row]));
  const kept = rows.map((row) => {
    const old = known.get(row.key);
    return old && isSame(old, row) ? old : row;
  });
  return kept.length === before.length && kept.every((row, at) => row === before[at]) ? before : kept;
}

/** @param {Row} one @param {Row} other */
function isSame(one, other) {
  // Objects of a row are those of its frame, which stays.
  const names = Object.keys(other);
  return names.length === Object.keys(one).length && names.every((name) => one[name] === other[name]);
}

/** @param {any[] | undefined} segments of a request */
const userBlocks = (segments) => (segments ?? []).filter((segment) => segment.role === "user").flatMap((segment) => segment.content ?? []);
const imagesOf = (segments) => userBlocks(segments).filter((block) => block.type === "image").length;
const userText = (segments) => userBlocks(segments).filter((block) => block.type !== "image").map((block) => block.text || (block.blob ? "[a long text]" : "")).filter(Boolean).join("\n");

/** Texts that were sent and have not joined the conversation yet. @param {import("./model.js").EventRecord[]} events */
export function pendingInputs(events) {
  const pending = [];
  for (let at = events.length - 1; at >= 0; at -= 1) {
    const { type, payload } = events[at];
    if ((type === "ModelCallRequested" && payload.attempt === 1) || ENDS.has(type)) break;
    if (type === "InputReceived") pending.unshift({ key: `pending-${events[at].seq}`, seq: events[at].seq, at: events[at].at, text: payload.text || "[a long text]" });
  }
  return pending;
}

const ENDS = new Set(["RunCompleted", "RunFailed", "RunCancelled"]);

const joined = (...parts) => parts.filter(Boolean).join(" · ");

/**
 * What happened beside the conversation, in words.
 * @param {string} type of the frame @param {any} data
 * @returns {{type: string, icon: string, tone: string, title: string, text: string, facts: any}} facts: shown as JSON on demand, or null
 */
export function noteOf(type, data) {
  const note = (icon, tone, title, text = "", facts = null) => ({ type, icon, tone, title, text, facts });
  switch (type) {
    case "context_compaction": {
      const one = data.context_compaction ?? {};
      const how = { auto: "by itself, because the context filled up", manual: "because somebody asked for it", self: "because the agent asked for it" }[one.trigger] ?? "";
      return note("archive", "info", `Context compacted: ${count(one.before_tokens)} to ${count(one.after_tokens)} tokens`, joined(how, one.memory_banked ? "facts were kept in memory" : ""), one);
    }
    case "compaction_failed":
      return note("archive", "warn", "The context could not be compacted", data.error ?? "");
    case "retry": {
      const retry = data.retry ?? {};
      return note("rotate-ccw", "warn", `${retry.provider || "The provider"} is asked again (attempt ${(retry.attempt ?? 0) + 1})`, joined(retry.reason, retry.wait_ms ? `after ${count(retry.wait_ms)} ms` : ""));
    }
    case "provider_fallback": {
      const one = data.fallback ?? {};
      return note("git-branch", "warn", `${one.new_provider}/${one.new_model} takes over from ${one.failed_provider}/${one.failed_model}`, joined(one.reason, one.cause_error), one);
    }
    case "fallback_suppressed":
    case "cache_invalidated":
    case "reasoning_invalidated":
    case "model_downgraded":
      return note("info", "warn", TITLES[type], data.text ?? "");
    case "limit": {
      const one = data.limit ?? {};
      return note("coins", one.severity === "hard" ? "bad" : "warn", one.severity === "hard" ? "A budget is used up" : "A budget comes to its end", one.message || joined(`${one.scope} ${one.scope_id ?? ""}`.trim(), `${count(one.used)} of ${count(one.limit)}`), one);
    }
    case "host_widened": {
      const one = data.host_widening ?? {};
      return note("external-link", "warn", `${one.hook_name || "A hook"} allowed further hosts`, joined((one.hosts_added ?? []).join(", "), one.tool_name), one);
    }
    case "hook_acted": {
      const one = data.hook_acted ?? {};
      return note("webhook", one.act === "denied" ? "bad" : "info", `${one.hook_name || "A hook"} ${HOOK_ACTS[one.act] ?? "acted on"} a call of ${one.tool_name || "a tool"}`, one.reason ?? "", one);
    }
    case "channel_publish":
    case "channel_delivery": {
      const one = data.channel ?? {};
      return note("radio", "", type === "channel_publish" ? `Published on ${one.channel}` : `Received from ${one.channel}`, one.payload_preview ?? "", one);
    }
    case "turn_cancelled":
      return note("square", "warn", "The turn was stopped", joined(data.turn_cancelled?.reason, "the run waits for input"));
    case "awaiting_input":
      return note("clock", "info", "Waits for input");
    case "paused":
      return note("circle-pause", "warn", "Paused", data.paused?.reason ?? "");
    case "resumed":
      return note("circle-play", "", "Resumed", data.resumed?.by ? `by ${data.resumed.by}` : "");
    case "quarantined":
      return note("octagon-x", "bad", "Quarantined: it waits for an operator", data.error ?? "");
    case "released":
      return note("circle-play", "", "Released from quarantine", data.released?.by ? `by ${data.released.by}` : "");
    case "notice":
      return note("bell-ring", "info", data.notice?.message || "A person was notified", data.notice?.context ?? "", data.notice ?? null);
    case "interruption_resolved":
      return note("message-square", "", `A question was ${data.interruption?.status ?? "resolved"}`, data.interruption?.answer ?? "");
    default:
      return note("info", "", type.replaceAll("_", " "), data.text ?? data.error ?? "", data);
  }
}

const TITLES = { fallback_suppressed: "No other model takes over", cache_invalidated: "The prompt cache is lost", reasoning_invalidated: "Reasoning was removed", model_downgraded: "A smaller model takes over" };
const HOOK_ACTS = { denied: "refused", rewrote_input: "changed the arguments of", rewrote_result: "changed the result of", unavailable: "gave no usable answer for" };

const count = (value) => (typeof value === "number" ? value.toLocaleString("en") : "?");

/** One line that says most of a tool's arguments or result. @param {any} value @param {number} [most] characters */
export function previewOf(value, most = 160) {
  if (value === undefined || value === null || value === "") return "";
  let text = value;
  if (typeof value !== "string") {
    const entries = Object.entries(value);
    text = entries.map(([name, one]) => `${name}: ${typeof one === "string" ? one : printJson(one)}`).join(", ").slice(0, most * 4);
  }
  text = text.slice(0, most * 4).replace(/\s+/g, " ").trim();
  return text.length > most ? `${text.slice(0, most - 1)}…` : text;
}

/** Groups of `size` rows; a group whose rows are all as before is the same array. @param {Row[]} rows @param {Row[][]} before */
export function groupsOf(rows, before, size) {
  const groups = [];
  for (let at = 0; at < rows.length; at += size) {
    const old = before[groups.length];
    const group = rows.slice(at, at + size);
    groups.push(old && old.length === group.length && old.every((row, number) => row === group[number]) ? old : group);
  }
  return groups;
}

/** Where the settled part of a text that still grows ends: after its last empty line outside of a block of code. @param {string} text @returns {number} */
export function settledLength(text) {
  const end = text.lastIndexOf("\n\n");
  if (end < 0) return 0;
  const settled = text.slice(0, end + 2);
  const fences = settled.match(/^ {0,3}(```|~~~)/gm)?.length ?? 0;
  if (fences % 2 === 0) return settled.length;
  const open = Math.max(settled.lastIndexOf("\n```"), settled.lastIndexOf("\n~~~"), settled.startsWith("```") || settled.startsWith("~~~") ? 0 : -1);
  return Math.max(0, open);
}

