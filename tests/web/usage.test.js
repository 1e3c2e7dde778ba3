// The table of usage: days, totals, order, CSV.
import assert from "node:assert/strict";
import { test } from "node:test";

import { csvOf, daysOf, dimensionsOf, filtered, rangeOf, rangeProblem, ranked, timesOf, totalsOf } from "../../services/web/pages/usage/model.js";

const row = (changes) => ({ agent: "a", model: "m", input_tokens: 1, output_tokens: 2, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, cost_micros: 0, call_count: 1, unpriced_calls: 0, ...changes });

test("money of two currencies is never added, nor compared", () => {
  const rows = [row({ currency: "USD", cost_micros: 10 }), row({ currency: "EUR", cost_micros: 1 }), row({ currency: "USD", cost_micros: 5 }), row({ unpriced_calls: 1 })];
  assert.deepEqual(totalsOf(rows).map((one) => [one.currency, one.cost_micros, one.call_count]), [["EUR", 1, 1], ["USD", 15, 2], [null, 0, 1]]);
  assert.deepEqual(ranked(rows, "cost").map((one) => [one.currency, one.share]), [["EUR", 1], ["USD", 1], ["USD", 0.5], [undefined, 0]]);
});

test("by tokens all rows are in one order", () => {
  const rows = [row({ currency: "USD", input_tokens: 8 }), row({ input_tokens: 98 }), row({ currency: "EUR" })];
  assert.deepEqual(ranked(rows, "tokens").map((one) => one.share), [1, 0.1, 0.03]);
});

test("the last day is included", () => {
  assert.deepEqual(timesOf("2026-02-27", "2026-02-28"), { from: "2026-02-27", to: "2026-03-01" });
  assert.deepEqual(timesOf("", ""), { from: undefined, to: undefined });
});

test("ranges end today, in UTC", () => {
  const now = Date.parse("2026-03-02T00:30:00Z");
  assert.deepEqual(rangeOf("today", now), { from: "2026-03-02", to: "2026-03-02" });
  assert.deepEqual(rangeOf("7d", now), { from: "2026-02-24", to: "2026-03-02" });
  assert.deepEqual(rangeOf("month", now), { from: "2026-03-01", to: "2026-03-02" });
});

test("what is wrong with the days is said", () => {
  assert.equal(rangeProblem("2026-01-01", "2026-01-01"), "");
  assert.match(rangeProblem("2026-01-02", "2026-01-01"), /after/);
  assert.match(rangeProblem("2026-13-45", ""), /expected a day/);
  assert.match(rangeProblem("", "yesterday"), /expected a day/);
});

test("unknown dimensions of an address are left out", () => {
  assert.deepEqual(dimensionsOf("day,nonsense,tenant"), ["tenant", "day"]);
  assert.deepEqual(dimensionsOf(""), ["agent", "model"]);
});

test("a filter needs every word in the names of the row", () => {
  const rows = [row({ agent: "Writer", model: "big" }), row({ agent: "writer", model: "small" })];
  assert.equal(filtered(rows, ["agent", "model"], "writer BIG").length, 1);
  assert.equal(filtered(rows, ["agent"], "big").length, 0);
  assert.equal(filtered(rows, ["agent"], " ").length, 2);
});

test("days without usage are zeros between the others", () => {
  const days = daysOf([row({ day: "2026-01-01", currency: "USD", cost_micros: 4 }), row({ day: "2026-01-03", currency: "USD", cost_micros: 6 }), row({ day: "2026-01-03" })], "", "2026-01-04");
  assert.deepEqual(days.costs, [{ currency: "USD", values: [4, 0, 6, 0] }]);
  assert.deepEqual(days.output, [2, 0, 4, 0]);
  assert.equal(days.times[1] - days.times[0], 86_400);
});

test("CSV quotes what has commas, and a spreadsheet calculates nothing from a name", () => {
  const text = csvOf([row({ agent: '=HYPERLINK("x"),', currency: "USD", cost_micros: 1_234_567 }), row({ agent: null })], ["agent"]);
  const lines = text.split("\r\n");
  assert.equal(lines[0], "agent,input_tokens,output_tokens,cache_creation_input_tokens,cache_read_input_tokens,call_count,unpriced_calls,cost_micros,cost,currency");
  assert.equal(lines[1], '"\'=HYPERLINK(""x""),",1,2,0,0,1,0,1234567,1.234567,USD');
  assert.equal(lines[2], ",1,2,0,0,1,0,0,,");
});
