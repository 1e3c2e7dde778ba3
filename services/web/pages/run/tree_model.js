// The runs of a tree as nodes of a drawing: parents, children, residents, and forks with a dashed line. Pure.
import { toneOf } from "../../outcome.js";

/** Most nodes that are drawn; the table below has all. */
export const NODES_MAX = 250;

/** Tone of a run's node; drawings have no tone without a colour. @param {any} run */
export function toneOfRun(run) {
  const tone = toneOf(run);
  return tone === "info" ? "warn" : tone || "c8";
}

const byStart = (a, b) => (a.started_at < b.started_at ? -1 : a.started_at > b.started_at ? 1 : a.run_id < b.run_id ? -1 : 1);

/**
 * @param {any[]} runs of the tree @param {any[]} forks of any of them @param {any} origin that the tree's root was forked from, or null
 * @returns {{run: any, parent: string | null, isFork: boolean, depth: number}[]} parents before children, siblings by their start
 */
export function treeRows(runs, forks, origin) {
  const seen = new Set();
  const all = [...(origin ? [{ run: origin, parent: null, isFork: false }] : []), ...runs.map((run) => ({ run, parent: run.parent_run_id, isFork: false })), ...forks.map((run) => ({ run, parent: run.forked_from?.run_id ?? null, isFork: true }))].filter(({ run }) => !seen.has(run.run_id) && seen.add(run.run_id));
  for (const one of all) if (!one.parent && origin && one.run.run_id !== origin.run_id && one.run.forked_from?.run_id === origin.run_id) Object.assign(one, { parent: origin.run_id, isFork: true });
  const known = new Set(all.map(({ run }) => run.run_id));
  const below = new Map();
  for (const one of all) {
    const parent = one.parent && known.has(one.parent) ? one.parent : "";
    below.set(parent, [...(below.get(parent) ?? []), one]);
  }
  const rows = [];
  const stack = (below.get("") ?? []).sort((a, b) => byStart(b.run, a.run)).map((one) => ({ ...one, parent: null, depth: 0 }));
  while (stack.length) {
    const one = stack.pop();
    rows.push(one);
    for (const next of (below.get(one.run.run_id) ?? []).sort((a, b) => byStart(b.run, a.run))) stack.push({ ...next, depth: one.depth + 1 });
  }
  return rows;
}

/** Sums over runs; cost by currency, because amounts of different ones are never added. @param {any[]} runs */
export function sumsOf(runs) {
  const sums = { runs: runs.length, input: 0, cached: 0, output: 0, live: 0, cost: /** @type {Record<string, number>} */ ({}) };
  for (const run of runs) {
    sums.input += run.usage.input_tokens;
    sums.cached += run.usage.cache_read_input_tokens + run.usage.cache_creation_input_tokens;
    sums.output += run.usage.output_tokens;
    if (run.status === "running") sums.live += 1;
    if (run.cost_micros) sums.cost[run.currency ?? ""] = (sums.cost[run.currency ?? ""] ?? 0) + run.cost_micros;
  }
  return sums;
}

/** The runs below a run. @param {any[]} runs of the tree @param {string} runId */
export function descendantsOf(runs, runId) {
  const below = new Map();
  for (const run of runs) if (run.parent_run_id) below.set(run.parent_run_id, [...(below.get(run.parent_run_id) ?? []), run]);
  const found = [];
  const stack = [runId];
  while (stack.length) for (const run of below.get(stack.pop()) ?? []) (found.push(run), stack.push(run.run_id));
  return found;
}
