// What a model saw at a turn: which records asked for it, what each part takes up, and what came and went since the turn before. Pure.
import { difference } from "../../components/lines.js";
import { printJson } from "../../exact_json.js";

/**
 * @typedef {{turn: number, attempt: number, seq: number, provider: string, model: string, usage: any, stopReason: string, isFailed: boolean, maxContext: number, compactions: any[], switched: any}} ModelCall
 *   seq: of the record that asked for it. compactions: records of the compactions between the call before and this one.
 */

/** The calls of the model in a run, in their order. @param {any[]} events @returns {ModelCall[]} */
export function callsOf(events) {
  /** @type {ModelCall[]} */
  const calls = [];
  let compactions = [];
  let switched = null;
  for (const { type, seq, payload } of events) {
    const last = calls[calls.length - 1];
    if (type === "ModelCallRequested") {
      calls.push({ turn: payload.turn, attempt: payload.attempt, seq, provider: payload.provider, model: payload.model, usage: null, stopReason: "", isFailed: false, maxContext: 0, compactions, switched });
      compactions = [];
      switched = null;
    } else if (type === "ModelReplied" && last?.turn === payload.turn) Object.assign(last, { usage: payload.usage, stopReason: payload.stop_reason, model: payload.model, maxContext: payload.max_context_tokens });
    else if (type === "ModelCallFailed" && last?.turn === payload.turn) last.isFailed = true;
    else if (type === "ContextCompacted") compactions.push({ ...payload, seq });
    else if (type === "ModelSwitched") switched = payload;
  }
  return calls;
}

/** The call that an address names: of a turn its last attempt unless one is named; without a turn the newest. @param {ModelCall[]} calls @param {number} turn @param {number} attempt */
export function callAt(calls, turn, attempt) {
  const ofTurn = turn ? calls.filter((call) => call.turn === turn) : calls;
  return ofTurn.find((call) => attempt && call.attempt === attempt) ?? ofTurn[ofTurn.length - 1] ?? null;
}

/** The call before, of the turn before: what its changes are compared with. @param {ModelCall[]} calls @param {ModelCall} call */
export function callBefore(calls, call) {
  const before = calls.slice(0, calls.indexOf(call)).filter((one) => one.turn < call.turn);
  return before[before.length - 1] ?? null;
}

/** Characters of a block as the model reads it. */
const lengthOf = (block) => (block.text ?? "").length + (block.input ?? "").length + (block.name ?? "").length + (block.blob?.size_bytes ?? 0);

/** @param {any} text of a system prompt, or a reference to one in the blob store */
export const systemText = (text) => (typeof text === "string" ? text : `[${text?.blob?.size_bytes ?? "?"} bytes in the blob store, ${text?.blob?.sha256 ?? ""}]`);

/**
 * What the parts of a context take up, in characters: tokens are known only for all of it.
 * @param {any} state as GET /v1/runs/{id}/state gives it
 */
export function sharesOf(state) {
  const shares = { system: 0, user: 0, assistant: 0, calls: 0, results: 0 };
  for (const text of state.system ?? []) shares.system += systemText(text).length;
  for (const message of state.messages) {
    for (const block of message.content) {
      const part = block.type === "tool_use" ? "calls" : block.type === "tool_result" ? "results" : message.role;
      shares[part] += lengthOf(block);
    }
    if (message.reasoning) shares.assistant += message.reasoning.length;
  }
  return shares;
}

/**
 * Messages of two turns: which stayed, which are new and which are gone (by a compaction, or because a turn was taken back).
 * @param {any[]} before @param {any[]} after
 * @returns {{kind: "same" | "added" | "removed", message: any, at: number}[]} at: place in `after`, or in `before` for those that are gone
 */
export function changesOf(before, after) {
  const keys = (messages) => messages.map((message) => printJson(message));
  const a = keys(before);
  const b = keys(after);
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  /** @type {{kind: "same" | "added" | "removed", message: any, at: number}[]} */
  const rows = after.slice(0, start).map((message, at) => ({ kind: "same", message, at }));
  const restA = a.slice(start);
  const restB = b.slice(start);
  const lines = !restA.length
    ? restB.map(() => ({ kind: /** @type {const} */ ("added") }))
    : !restB.length
      ? restA.map(() => ({ kind: /** @type {const} */ ("removed") }))
      : (difference(restA.join("\n"), restB.join("\n")) ?? [...restA.map(() => ({ kind: /** @type {const} */ ("removed") })), ...restB.map(() => ({ kind: /** @type {const} */ ("added") }))]);
  let x = start;
  let y = start;
  for (const { kind } of lines) {
    if (kind === "removed") rows.push({ kind, message: before[x], at: x });
    else rows.push({ kind, message: after[y], at: y });
    if (kind !== "added") x += 1;
    if (kind !== "removed") y += 1;
  }
  return rows;
}

/** A state as text, for a comparison line by line. @param {any} state @param {ModelCall} call */
export function asText(state, call) {
  const blocks = (message) =>
    message.content.map((block) => {
      if (block.type === "tool_use") return `calls ${block.name} ${block.input}`;
      if (block.type === "tool_result") return `result of ${block.name}${block.is_error ? " (error)" : ""}: ${block.text}`;
      if (block.type === "image") return `[image ${block.media_type}]`;
      return block.text;
    });
  return [`model ${call.provider}/${call.model}`, `tools ${(state.definition?.tools ?? []).join(", ")}`, "", ...(state.system ?? []).map((text) => `system: ${systemText(text)}`), ...state.messages.flatMap((message) => ["", `${message.role}:`, ...blocks(message)])].join("\n");
}

/** Settings of the definition that the call was made with: name and value, those that are set. @param {any} definition */
export function parametersOf(definition) {
  if (!definition) return [];
  const sampling = Object.entries(definition.sampling ?? {}).filter(([, value]) => value !== null && !(Array.isArray(value) && !value.length));
  const plain = ["effort", "max_tokens", "max_iterations", "retry_attempts", "run_timeout_s", "max_concurrent_children", "unknown_outcome"].map((name) => [name, definition[name]]).filter(([, value]) => value);
  const compaction = Object.entries(definition.compaction ?? {}).filter(([, value]) => value !== null && value !== "").map(([name, value]) => [`compaction ${name}`, value]);
  return [...plain, ...sampling, ...compaction].map(([name, value]) => ({ name: String(name).replaceAll("_", " "), value: Array.isArray(value) ? value.join(", ") : String(value) }));
}
