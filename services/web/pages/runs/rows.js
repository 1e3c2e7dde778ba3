// Rows of the list of runs: what is kept of a run, and how frames of the stream and later readings change them in their places.
import { standOf, whyOf } from "../../outcome.js";

/**
 * The fields of a run that the list shows; a list of 100,000 whole runs would fill the memory of the tab.
 * @param {Api.Run} run
 */
export function rowOf(run) {
  const usage = run.usage ?? {};
  return {
    run_id: run.run_id,
    agent_id: run.agent_id,
    agent: run.agent,
    def_version: run.def_version ?? null,
    def_id: run.def_id ?? null,
    session_id: run.session_id,
    root_run_id: run.root_run_id,
    parent_run_id: run.parent_run_id ?? null,
    depth: run.depth ?? 0,
    tenant_id: run.tenant_id,
    user_id: run.user_id,
    model: run.model ?? "",
    status: run.status,
    live: run.status === "running",
    started_at: run.started_at,
    completed_at: run.completed_at ?? null,
    iterations: run.iterations ?? 0,
    tool_calls: run.tool_calls ?? 0,
    tool_errors: run.tool_errors ?? 0,
    input_tokens: (usage.input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0) + (usage.cache_read_input_tokens ?? 0),
    output_tokens: usage.output_tokens ?? 0,
    cost_micros: run.cost_micros ?? 0,
    currency: run.currency ?? null,
    error: run.error ?? null,
    stop_reason: run.stop_reason ?? null,
    failed_children: run.failed_children ?? 0,
    parked: run.parked ?? false,
    paused: run.paused ?? false,
    pause_requested: run.pause_requested ?? false,
    pause_reason: run.pause_reason ?? null,
    quarantined: run.quarantined ?? false,
    quarantine_error: run.quarantine_error ?? null,
    awaited_state: run.awaited_state ?? null,
    awaited_on: run.awaited_on ?? null,
    under_way: run.under_way ?? [],
    forked_from: run.forked_from ?? null,
    position: run.position ?? "",
  };
}

/** Fields of a frame that a row has under the same name. */
const SAME = ["status", "completed_at", "iterations", "cost_micros", "currency", "error", "stop_reason", "failed_children", "parked", "paused", "pause_requested", "pause_reason", "quarantined", "quarantine_error", "awaited_state", "awaited_on", "model"];

const offsetOf = (position) => Number(position.slice(position.lastIndexOf(":") + 1)) || 0;

/** Whether one state of a run is at least as new as another: positions of one run are in one partition. */
const isAsNew = (row, before) => !row.position || !before.position || offsetOf(row.position) >= offsetOf(before.position);

/** A row after a frame (run_state, run_change) of its run. @param {any} row @param {any} frame */
export function withFrame(row, frame) {
  if (!isAsNew(frame, row)) return row;
  const next = { ...row, position: frame.position ?? row.position };
  for (const name of SAME) if (frame[name] !== undefined) next[name] = frame[name];
  next.live = next.status === "running";
  if (!next.live) next.under_way = [];
  if (frame.usage) {
    const read = rowOf(frame);
    next.input_tokens = read.input_tokens;
    next.output_tokens = read.output_tokens;
  }
  return next;
}

/**
 * Rows after frames, each in its place, and the rows of runs that are not in the list, newest first.
 * @param {any[]} rows @param {any[]} frames data of run_state and run_change, oldest first
 * @returns {{rows: any[], unknown: any[]}} the same `rows` if nothing changed
 */
export function applyFrames(rows, frames) {
  const byRun = new Map();
  for (const frame of frames) {
    const list = byRun.get(frame.run_id);
    if (list) list.push(frame);
    else byRun.set(frame.run_id, [frame]);
  }
  let changed = rows;
  for (let at = 0; at < rows.length && byRun.size; at += 1) {
    const list = byRun.get(rows[at].run_id);
    if (!list) continue;
    byRun.delete(rows[at].run_id);
    const next = list.reduce(withFrame, rows[at]);
    if (next === rows[at]) continue;
    if (changed === rows) changed = rows.slice();
    changed[at] = next;
  }
  const unknown = [...byRun.values()].map((list) => list.slice(1).reduce(withFrame, rowOf(list[0])));
  return { rows: changed, unknown: unknown.sort(newestFirst) };
}

/**
 * Rows with later readings put over them in their places, and those readings that are not in the list.
 * @param {any[]} rows @param {any[]} read rows of a list call
 * @returns {{rows: any[], unknown: any[]}}
 */
export function applyReadings(rows, read) {
  const byRun = new Map(read.map((row) => [row.run_id, row]));
  let changed = rows;
  for (let at = 0; at < rows.length && byRun.size; at += 1) {
    const next = byRun.get(rows[at].run_id);
    if (!next) continue;
    byRun.delete(next.run_id);
    if (!isAsNew(next, rows[at])) continue;
    if (changed === rows) changed = rows.slice();
    changed[at] = next;
  }
  return { rows: changed, unknown: [...byRun.values()] };
}

/** The order of the API: newest start first, then the id. */
export function newestFirst(a, b) {
  if (a.started_at !== b.started_at) return a.started_at < b.started_at ? 1 : -1;
  return a.run_id < b.run_id ? 1 : a.run_id > b.run_id ? -1 : 0;
}

/**
 * Rows with further ones at their places in the order; one that is there already is not added again.
 * @param {any[]} rows newest first @param {any[]} added
 */
export function insertRows(rows, added) {
  if (!added.length) return rows;
  const sorted = [...added].sort(newestFirst);
  const oldest = sorted[sorted.length - 1];
  // Only the beginning of the list can contain them.
  let end = 0;
  while (end < rows.length && newestFirst(rows[end], oldest) <= 0) end += 1;
  const known = new Set(rows.slice(0, end).map((row) => row.run_id));
  const head = [...rows.slice(0, end), ...sorted.filter((row) => !known.has(row.run_id))].sort(newestFirst);
  return [...head, ...rows.slice(end)];
}

/** What a run waits for or does now, in few words; empty when it has ended well. @param {any} row */
export function waitText(row) {
  if (row.quarantined) return row.quarantine_error || "an operator: it is quarantined";
  if (row.status === "failed") return row.error || "";
  if (row.status === "cancelled") return row.stop_reason ?? "";
  if (row.status !== "running") return standOf(row) === "completed" ? "" : whyOf(row);
  if (row.pause_requested) return row.pause_reason ? `paused: ${row.pause_reason}` : "paused";
  if (row.awaited_state === "interrupted") return "an answer";
  if (row.parked) return "input";
  return row.under_way.join(", ");
}
