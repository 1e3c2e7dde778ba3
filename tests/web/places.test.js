import assert from "node:assert/strict";
import { test } from "node:test";
import { placeOf, recordOfRun, recordsOf } from "../../services/web/places.js";
import { match } from "../../services/web/match.js";

test("each kind of id has its page", () => {
  assert.equal(placeOf(" r_01m8b4j2d4 "), "/runs/r_01m8b4j2d4");
  assert.equal(placeOf("s_01m8b4j2d4"), "/runs?session_id=s_01m8b4j2d4");
  assert.equal(placeOf("def_9a21c6a58643d359"), "/library/version/def_9a21c6a58643d359");
  assert.equal(placeOf("report"), "/runs?id=report");
});

test("what pages show of an id is searched for, and so are words: no address is refused", () => {
  assert.equal(placeOf("…8b4j2d4"), "/runs?id=8b4j2d4");
  assert.equal(placeOf("8b4j2d"), "/runs?id=8b4j2d");
  for (const text of ["r_ a b", "s_a/b", "def_ x", "quarterly report", "ü", "%", "def_9a21"]) assert.equal(placeOf(text), `/runs?id=${encodeURIComponent(text)}`);
  assert.equal(placeOf("x".repeat(999)), `/runs?id=${"x".repeat(256)}`);
});

test("a record is found by its position, with a colon or a slash before the offset", () => {
  assert.equal(placeOf("loom.run.events/3:1042"), "/log/loom.run.events/3?from=1042");
  assert.equal(placeOf("loom.dead-letter/0/7"), "/log/loom.dead-letter/0?from=7");
});

test("an aggregate leads to its records, also one of no tenant", () => {
  assert.equal(placeOf("budget:/installation"), "/log/aggregate/budget%3A%2Finstallation");
  assert.equal(placeOf("definition:acme/agent/a b"), "/log/aggregate/definition%3Aacme%2Fagent%2Fa%20b");
  assert.equal(placeOf("what: is this"), "/runs?id=what%3A%20is%20this");
  assert.equal(recordsOf("pause:/installation", { from: "2026-11-26T05:00:00Z", type: "PauseSet" }), "/log/aggregate/pause%3A%2Finstallation?from=2026-11-26T05%3A00%3A00Z&type=PauseSet");
});

test("a record of a run is among its events", () => {
  assert.equal(recordOfRun("r_1", { seq: 7 }), "/runs/r_1/events?seq=7");
  assert.equal(recordOfRun("r_1", { type: "InterruptionClosed", text: "intr_1" }), "/runs/r_1/events?type=InterruptionClosed&text=intr_1");
});

test("a path with a segment that is escaped wrongly still has a page", () => {
  assert.deepEqual(match("/runs/:run/*view", "/runs/%zz/events"), { run: "%zz", view: "events" });
  assert.deepEqual(match("/memory/*rest", "/memory/user/a%2Fb"), { rest: "user/a/b" });
  assert.equal(match("/runs/:run", "/runs"), null);
});
