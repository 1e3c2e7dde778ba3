// What a run used and the tree that it belongs to, over records of real runs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { standOf } from "../../services/web/outcome.js";
import { descendantsOf, sumsOf, toneOfRun, treeRows } from "../../services/web/pages/run/tree_model.js";
import { bucketed, usageOf } from "../../services/web/pages/run/usage_model.js";

const read = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, import.meta.url), "utf8"));

test("the turns and the compaction add up to the totals, and so do the models", () => {
  const { rows, models, totals } = usageOf(read("events_interactive"));
  assert.deepEqual(rows.map((row) => row.kind[0] + row.turn), ["t1", "t2", "t3", "t4", "t5", "t6", "c7", "t7", "t8"]);
  for (const list of [rows, models]) for (const name of ["input", "cacheRead", "output", "cost"]) assert.equal(list.reduce((sum, row) => sum + row[name], 0), totals[name], name);
  assert.equal(rows[3].cacheRead, 900);
  assert.equal(rows[0].tools, 4);
});

test("failed calls are counted at their turn and cost nothing", () => {
  const { rows, totals } = usageOf(read("events_retries"));
  assert.deepEqual(rows.map((row) => [row.turn, row.failures, row.calls, row.cost]), [[1, 3, 0, 0]]);
  assert.equal(totals.failures, 3);
});

test("a long run is joined to as many bars as fit, and none is lost", () => {
  const rows = Array.from({ length: 1_000 }, (_, at) => ({ key: `t${at}`, turn: at + 1, kind: "turn", input: 1, cacheRead: 0, cacheWrite: 0, output: 2, cost: 3, currency: "USD" }));
  const bars = bucketed(rows, 160);
  assert.ok(bars.length <= 160);
  assert.equal(bars.reduce((sum, bar) => sum + bar.output, 0), 2_000);
  assert.equal(bars[0].name, "Turns 1 to 7");
});

const run = (run_id, parent_run_id, started_at, more = {}) => ({ run_id, parent_run_id, started_at, status: "completed", usage: { input_tokens: 1, output_tokens: 2, cache_read_input_tokens: 3, cache_creation_input_tokens: 4 }, cost_micros: 5, currency: "USD", forked_from: null, ...more });

test("parents come before their children, siblings by their start, and a fork below its origin", () => {
  const tree = [run("c2", "r", "3"), run("c1", "r", "2"), run("r", null, "1"), run("g", "c1", "4")];
  const fork = run("f", null, "5", { forked_from: { run_id: "c1", seq: 7 } });
  const rows = treeRows(tree, [fork], null);
  assert.deepEqual(rows.map((row) => [row.run.run_id, row.depth, row.isFork]), [["r", 0, false], ["c1", 1, false], ["g", 2, false], ["f", 2, true], ["c2", 1, false]]);
});

test("the run that a tree's root was forked from stands above it", () => {
  const rows = treeRows([run("r", null, "2", { forked_from: { run_id: "o", seq: 3 } })], [], run("o", null, "1"));
  assert.deepEqual(rows.map((row) => [row.run.run_id, row.parent, row.isFork]), [["o", null, false], ["r", "o", true]]);
});

test("a run whose parent is not in the list is a root, and no run is lost or doubled", () => {
  const rows = treeRows([run("a", "gone", "1"), run("a", "gone", "1"), run("b", "a", "2")], [], null);
  assert.deepEqual(rows.map((row) => row.run.run_id), ["a", "b"]);
});

test("children of children count, and currencies are never added", () => {
  const tree = [run("r", null, "1"), run("c", "r", "2"), run("g", "c", "3", { currency: "EUR" })];
  const sums = sumsOf(descendantsOf(tree, "r"));
  assert.deepEqual([sums.runs, sums.input, sums.cached, sums.output, sums.cost], [2, 2, 14, 4, { USD: 5, EUR: 5 }]);
  assert.equal(standOf(run("r", null, "1", { status: "running", parked: true })), "waits for input");
  const toneOf = (more) => toneOfRun(run("r", null, "1", { status: "completed", ...more }));
  assert.equal(toneOf({ stop_reason: "end_turn", failed_children: 0 }), "good");
  for (const more of [{ stop_reason: "max_iterations" }, { stop_reason: "max_tokens" }, { stop_reason: "end_turn", failed_children: 1 }]) assert.equal(toneOf(more), "warn", JSON.stringify(more));
  assert.equal(standOf({ status: "completed", stop_reason: "max_iterations", failed_children: 2 }), "cut off");
});
