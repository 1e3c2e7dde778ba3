// Budget limits as bars and as the form that sets them.
import assert from "node:assert/strict";
import { test } from "node:test";

import { accountOf, formOf, keyOf, limitBody, metersOf, monthOf, monthQuery, tightest } from "../../services/web/pages/operations/budget_model.js";

const limit = (changes) => ({
  tenant_id: "acme", scope: "tenant", scope_id: "", soft_limit: null, hard_limit: null, used: 0, reserved: 0, strict: false,
  soft_limit_micros: null, hard_limit_micros: null, used_micros: 0, reserved_micros: 0, currency: "USD", ...changes,
});
const form = (changes) => ({ ...formOf(null), tenant: "acme", ...changes });

test("a bar is full and bad when the hard limit is used up", () => {
  const [meter] = metersOf(limit({ soft_limit: 50, hard_limit: 100, used: 140 }));
  assert.deepEqual([meter.share, meter.state], [1, "bad"]);
});

test("above the soft limit it warns, below it is good", () => {
  assert.equal(metersOf(limit({ soft_limit: 50, hard_limit: 100, used: 50 }))[0].state, "warn");
  assert.equal(metersOf(limit({ soft_limit: 50, hard_limit: 100, used: 49 }))[0].state, "good");
});

test("a limit of zero is used up at once", () => {
  const [meter] = metersOf(limit({ hard_limit: 0 }));
  assert.deepEqual([meter.share, meter.state], [1, "bad"]);
});

test("tokens and money have a bar each, and what is not limited has none", () => {
  assert.deepEqual(metersOf(limit({ hard_limit: 10, soft_limit_micros: 5 })).map((one) => one.unit), ["tokens", "money"]);
  assert.deepEqual(metersOf(limit({ hard_limit_micros: 5 })).map((one) => one.unit), ["money"]);
});

test("amounts of money are exact", () => {
  assert.equal(limitBody(form({ hardMoney: "1.1" })).hard_limit_micros, 1_100_000);
  assert.equal(limitBody(form({ softMoney: "0.000001" })).soft_limit_micros, 1);
  assert.throws(() => limitBody(form({ hardMoney: "1,5" })), /expected an amount/);
});

test("tokens may be grouped, and are whole", () => {
  assert.equal(limitBody(form({ hardTokens: "2,000 000" })).hard_limit, 2_000_000);
  assert.throws(() => limitBody(form({ hardTokens: "1.5" })), /whole number/);
});

test("what is missing is said", () => {
  assert.throws(() => limitBody(form({})), /at least one/);
  assert.throws(() => limitBody(form({ scope: "user", hardTokens: "1" })), /needs the user/);
  assert.throws(() => limitBody(form({ softTokens: "1", strict: true })), /Strict needs/);
});

test("the installation has no tenant", () => {
  assert.equal("tenant_id" in limitBody(form({ scope: "operator", hardTokens: "1" })), false);
});

test("the form of a limit gives the same limit", () => {
  const kept = limit({ scope: "user", scope_id: "ann", soft_limit: 5, hard_limit_micros: 2_500_000, strict: false });
  assert.deepEqual(limitBody(formOf(kept)), { scope: "user", strict: false, tenant_id: "acme", scope_id: "ann", soft_limit: 5, hard_limit_micros: 2_500_000 });
  assert.equal(accountOf(kept), "user ann of acme");
});

const NOW = Date.parse("2026-03-04T10:00:00Z");
const used = (day, changes = {}) => ({ day, input_tokens: 1, output_tokens: 2, cache_creation_input_tokens: 3, cache_read_input_tokens: 4, cost_micros: 5, currency: "USD", ...changes });

test("the use of a month adds up day by day, tokens of all kinds", () => {
  const { times, series } = monthOf([used("2026-03-02"), used("2026-03-04")], limit({ soft_limit: 15, hard_limit: 30 }), "tokens", NOW);
  assert.equal(times[0], Date.parse("2026-03-01") / 1_000);
  assert.deepEqual(series.map((one) => one.values), [[0, 10, 10, 20], [15, 15, 15, 15], [30, 30, 30, 30]]);
});

test("money of another currency does not count, nor what other users used", () => {
  const rows = [used("2026-03-01", { user_id: "ann" }), used("2026-03-01", { user_id: "ann", currency: "EUR" }), used("2026-03-01", { user_id: "bea" })];
  const { series } = monthOf(rows, limit({ scope: "user", scope_id: "ann", hard_limit_micros: 9 }), "money", NOW);
  assert.deepEqual(series[0].values, [5, 5, 5, 5]);
});

test("the query is of the month and of whom the limit is", () => {
  assert.deepEqual(monthQuery(limit({}), NOW), { from: "2026-03-01", tenant: "acme", group_by: "day" });
  assert.deepEqual(monthQuery(limit({ scope: "operator", tenant_id: "" }), NOW), { from: "2026-03-01", tenant: "", group_by: "day" });
  assert.equal(monthQuery(limit({ scope: "user", scope_id: "ann" }), NOW).group_by, "user,day");
});

test("the tightest limit is the one of which most is used", () => {
  const limits = [limit({ hard_limit: 100, used: 10 }), limit({ scope: "user", scope_id: "ann", hard_limit_micros: 100, used_micros: 90 }), limit({ hard_limit: 100, used: 20 })];
  assert.equal(keyOf(tightest(limits)), "user/acme/ann");
});
