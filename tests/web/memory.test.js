// The pages of memory: addresses, what makes a score, marked words, and versions with those before them.
import assert from "node:assert/strict";
import test from "node:test";
import {
  authorOf, columnType, comparedText, factText, marked, nameOf, operationOf, parseValue, pathOf, placeOfPath, quoted, remembered, runPathOf, scoreParts, searchBody, share, withBefore, withChanges,
} from "../../services/web/pages/memory/model.js";
import { oneLine, toRfc3339 } from "../../services/web/values.js";

test("an address names a scope, whose id may have slashes; the tenant has one scope", () => {
  assert.equal(placeOfPath(""), null);
  assert.deepEqual(placeOfPath("user/ada"), { scope: "user", id: "ada" });
  assert.deepEqual(placeOfPath("agent/memory/consolidator"), { scope: "agent", id: "memory/consolidator" });
  assert.deepEqual(placeOfPath("tenant/x"), { scope: "tenant", id: "" });
  assert.equal(pathOf("agent", "memory/consolidator"), "/memory/agent/memory%2Fconsolidator");
  assert.equal(pathOf("tenant", "x"), "/memory/tenant");
  assert.equal(nameOf("user", "ada"), "user ada");
});

test("a text is a value when it is JSON, null too; else it is said why not", () => {
  assert.deepEqual(parseValue("null"), { value: null });
  assert.deepEqual(parseValue(' {"a": 1}'), { value: { a: 1 } });
  assert.match(parseValue("{a}").problem, /not JSON/);
  assert.match(parseValue("  ").problem, /JSON value/);
});

test("each version has the one before it, which is null for the first and unknown where it was not read", () => {
  const versions = [{ revision: 5, previous_revision: 3 }, { revision: 3, previous_revision: 1 }];
  assert.deepEqual(withBefore(versions, true).map((one) => one.before?.revision ?? null), [3, null]);
  assert.equal(withBefore(versions, false)[1].before, undefined);
  assert.equal(withBefore([{ revision: 1 }], false)[0].before, null);
  assert.equal(comparedText({ value: "a\nb" }), "a\nb");
  assert.equal(comparedText({ value: { a: 1 } }), '{\n  "a": 1\n}');
  assert.equal(comparedText({ op: "delete" }), "");
  assert.equal(comparedText({ value: null }), "null");
});

test("an author is the agent, else the principal, else the origin in plain words", () => {
  assert.equal(authorOf({ origin: "agent_explicit", agent: "helper", run_id: "r_1" }), "helper");
  assert.equal(authorOf({ origin: "consolidator", agent: "keeper" }), "keeper (consolidator)");
  assert.equal(authorOf({ origin: "operator", principal: "ops" }), "ops");
  assert.equal(authorOf({ origin: "service" }), "the system");
  assert.equal(authorOf(null), "");
  assert.equal(operationOf({ op: "expire" }), "expired");
  assert.equal(operationOf({ op: "later" }), "later");
  assert.equal(runPathOf({ run_id: "r_1", turn: 3, call: 0 }), "/runs/r_1/context?turn=3");
  assert.equal(runPathOf({ run_id: "r_1", turn: 0 }), "/runs/r_1/context");
  assert.equal(runPathOf({ principal: "ops" }), "");
});

test("the text of a fact is the field that has it, else its JSON", () => {
  assert.equal(factText({ memory: "likes tea", text: "no" }), "likes tea");
  assert.equal(factText({ fact: "likes tea" }), "likes tea");
  assert.equal(factText("likes tea"), "likes tea");
  assert.equal(factText({ a: 1 }), '{"a":1}');
});

test("the parts of a score are those that fusion gives, and the rest is of age and use", () => {
  const first = scoreParts({ rank_score: 1, ranks: { lexical: 1, semantic: 1 } }, true);
  assert.deepEqual([first.words, first.meaning, first.other], [0.5, 0.5, 0]);
  const words = scoreParts({ rank_score: 61 / 62, ranks: { lexical: 2, semantic: null } }, false);
  assert.ok(Math.abs(words.words - 61 / 62) < 1e-9 && words.meaning === 0 && words.other === 0);
  const weighted = scoreParts({ rank_score: 3.5, ranks: { lexical: 1, semantic: 1 } }, true, 3);
  assert.deepEqual([weighted.words, weighted.meaning, weighted.other], [1.5, 1.5, 0.5]);
});

test("a search says only what differs from the defaults", () => {
  const form = { query: " tea ", scope: "user", scope_id: "ada", top_k: "", prefix: "", sources: [], dedup: "" };
  assert.deepEqual(searchBody(form), { query: "tea", scope: "user", scope_id: "ada" });
  assert.deepEqual(searchBody({ ...form, scope: "tenant", scope_id: "" }), { query: "tea", scope: "tenant" });
  const full = { ...form, top_k: "5", prefix: "a/", sources: ["facts"], recency_weight: "0.5", semantic_weight: "0", dedup: "merge", threshold: "0.8" };
  assert.deepEqual(searchBody(full), {
    query: "tea", scope: "user", scope_id: "ada", top_k: 5, prefix: "a/", sources: ["facts"],
    rank: { semantic_weight: 0, recency_weight: 0.5 }, dedup: { enabled: true, mode: "merge", threshold: 0.8 },
  });
});

test("words of the query are marked, also with another ending, and nothing of the text is lost", () => {
  const text = "Green TEAS, and team <b>green</b>!";
  const pieces = marked(text, "green tea");
  assert.equal(pieces.map((piece) => piece.text).join(""), text);
  assert.deepEqual(pieces.filter((piece) => piece.isMarked).map((piece) => piece.text), ["Green", "TEAS", "team", "green"]);
  assert.deepEqual(marked("teapot stand", "tea").filter((piece) => piece.isMarked).map((piece) => piece.text), ["teapot"]);
  assert.deepEqual(marked("to a tea", "a").length, 1);
  assert.deepEqual(marked("", "tea"), []);
});

test("a column has the type of its values", () => {
  const rows = [[1, 1, "a", null, { $blob: "AA==" }, 1], [2, 2.5, null, null, null, "x"]];
  assert.deepEqual([0, 1, 2, 3, 4, 5].map((at) => columnType(rows, at)), ["integer", "real", "text", "null", "blob", "mixed"]);
  assert.equal(columnType([], 0), "");
  assert.equal(columnType([["Infinity"], [1]], 0), "real");
  assert.equal(quoted('a"b'), '"a""b"');
});

test("statements are remembered once, the newest first, and not without end", () => {
  assert.deepEqual(remembered(["b", "a"], "a"), ["a", "b"]);
  assert.deepEqual(remembered(["b", "a"], "c", 2), ["c", "b"]);
});

test("changes come in front once, the newest first, and not without end", () => {
  const rows = withChanges([], [{ seq: 1 }, { seq: 2 }]);
  assert.deepEqual(rows.map((row) => row.seq), [2, 1]);
  assert.deepEqual(withChanges(rows, [{ seq: 2 }, { seq: 3 }], 2).map((row) => row.seq), [3, 2]);
  assert.equal(withChanges(rows, [{ seq: 1 }]), rows);
});

test("small texts: one line, times, and shares of a quota", () => {
  assert.equal(oneLine("a\n b"), "a b");
  assert.equal(oneLine({ a: "xx" }, 4), '{"a"…');
  assert.equal(toRfc3339("never"), "");
  assert.match(toRfc3339("2026-11-26T05:00:01"), /^2026-11-2\dT\d\d:\d0:01\.000Z$/);
  assert.equal(share({ bytes: 50, quota_bytes: 200 }), 25);
  assert.equal(share({ bytes: 500, quota_bytes: 200 }), 100);
  assert.equal(share({ bytes: 500, quota_bytes: -1 }), null);
});
