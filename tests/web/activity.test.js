// The report of insights as charts, and partitions as rows.
import assert from "node:assert/strict";
import { test } from "node:test";

import { chartsOf, minutesOf, ownersOf, takeoversOf, windowOf } from "../../services/web/pages/activity/model.js";

const MINUTE = 60_000;
const START = 1_795_668_300_000;

function minute(at, changes = {}) {
  return {
    start_ms: START + at * MINUTE, runs: 1, completed: 1, failed: 0, cancelled: 0, tokens: 3, input_tokens: 2, output_tokens: 1, cost_micros: { USD: 5 },
    duration_ms: { p50: 10, p95: 20 }, models: [], model_calls: 1, model_errors: 0, tool_calls: 0, tool_errors: 0, ...changes,
  };
}
const report = (minutes, at = 3) => ({ at_ms: START + at * MINUTE + 5_000, history_minutes: 15, minutes, windows: { "1m": {}, "5m": {} } });

test("minutes in which nothing ended are there, with zeros and without durations", () => {
  const minutes = minutesOf(report([minute(0), minute(2)]));
  assert.deepEqual(minutes.map((one) => one.runs), [1, 0, 1, 0]);
  assert.equal(minutes[1].duration_ms.p50, null);
});

test("a report without minutes has no chart", () => {
  assert.deepEqual(chartsOf(report([])).times, []);
});

test("minutes older than the history are left out", () => {
  assert.equal(minutesOf(report([minute(0)], 40))[0].start_ms, START + 25 * MINUTE);
});

test("each currency has its own list, and a minute without it costs nothing", () => {
  const { costs } = chartsOf(report([minute(0), minute(1, { cost_micros: { EUR: 7 } })], 1));
  assert.deepEqual(costs, [{ currency: "EUR", values: [0, 7] }, { currency: "USD", values: [5, 0] }]);
});

test("latencies are of the models with most calls, in an order that stays", () => {
  const model = (name, calls) => ({ provider: "p", model: name, timed_calls: calls, duration_ms: { p50: 1, p95: calls } });
  const many = ["a", "b", "c", "d", "e", "f", "g"].map((name, at) => model(name, at + 1));
  const { latencies } = chartsOf(report([minute(0, { models: many }), minute(1, { models: [model("g", 9)] })], 1));
  assert.deepEqual(latencies.map((one) => one.name), ["p/b", "p/c", "p/d", "p/e", "p/f", "p/g"]);
  assert.deepEqual(latencies.at(-1)?.values, [7, 9]);
  assert.deepEqual(latencies[0].values, [2, null]);
});

test("a window of the address holds only if the report has it", () => {
  assert.equal(windowOf("1m", report([])), "1m");
  assert.equal(windowOf("9h", report([])), "5m");
  assert.equal(windowOf(null, { windows: { "1m": {} } }), "1m");
});

const list = {
  topics: [
    { name: "runs", topic: "loom.run.events", partitions: [
      { partition: 0, owner: "a", lag: 2, takeovers: [{ term: 9, owner: "a", reason: "standby", at: "2026-01-02T00:00:00Z" }, { term: 1, owner: "b", reason: "assigned", at: "2026-01-01T00:00:00Z" }] },
      { partition: 1, owner: null, lag: 0, takeovers: [] },
    ] },
    { name: "entity", topic: "loom.entity.events", partitions: [{ partition: 0, owner: "a", lag: 1, takeovers: [{ term: 4, owner: "a", reason: "assigned", at: "2026-01-01T12:00:00Z" }] }] },
  ],
};

test("take-overs of all partitions are one list, newest first", () => {
  assert.deepEqual(takeoversOf(list).map((one) => [one.name, one.partition, one.term]), [["runs", 0, 9], ["entity", 0, 4], ["runs", 0, 1]]);
});

test("owners have their partitions and lag; a partition without an owner counts too", () => {
  assert.deepEqual(ownersOf(list), [{ owner: "a", partitions: 2, lag: 3 }, { owner: "", partitions: 1, lag: 0 }]);
});
