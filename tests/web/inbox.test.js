// The order of the inbox and the time that is left. Run with `node --test tests/web`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { inOrder, nextOf, timeLeft } from "../../services/web/pages/inbox/questions.js";

const question = (id, priority, created_at, more = {}) => ({ interrupt_id: id, priority, created_at, ...more });

test("the most urgent come first, then the newest; no priority is normal", () => {
  const list = [question("low", "low", "2026-01-01T09"), question("old", "normal", "2026-01-01T01"), question("new", null, "2026-01-01T05"), question("high", "high", "2026-01-01T00")];
  assert.deepEqual(inOrder(list).map((one) => one.interrupt_id), ["high", "new", "old", "low"]);
});

test("the least time left comes first, whatever is urgent, and what waits for ever last", () => {
  const until = (id, priority, expires_at) => question(id, priority, "2026-01-01T00", { expires_at });
  const list = [until("ever", "high", null), until("hour", "high", "2026-01-01T01:00:00Z"), until("minute", "low", "2026-01-01T00:01:00Z"), until("same", "normal", "2026-01-01T01:00:00+00:00")];
  assert.deepEqual(inOrder(list).map((one) => one.interrupt_id), ["minute", "hour", "same", "ever"]);
});

test("time runs out, soon is the last five minutes, and no end is no time", () => {
  const at = Date.parse("2026-01-01T00:00:00Z");
  const left = (text) => timeLeft({ expires_at: text }, at);
  assert.equal(left(null), null);
  assert.deepEqual(left("2026-01-01T01:00:00Z"), { ms: 3_600_000, isSoon: false, hasExpired: false });
  assert.deepEqual(left("2026-01-01T00:01:00Z"), { ms: 60_000, isSoon: true, hasExpired: false });
  assert.deepEqual(left("2025-12-31T23:59:00Z"), { ms: 0, isSoon: true, hasExpired: true });
});

test("after an answer the mark goes to the question that followed", () => {
  const [a, b, c] = ["a", "b", "c"].map((id) => question(id, "normal", ""));
  assert.equal(nextOf([a, c], "b", [a, b, c]), "c");
  assert.equal(nextOf([a, b], "c", [a, b, c]), "b");
  assert.equal(nextOf([a, b], "b", [a, b, c]), "b");
  assert.equal(nextOf([], "b", [a, b]), "");
  assert.equal(nextOf([a], "", []), "a");
});
