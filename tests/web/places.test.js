import assert from "node:assert/strict";
import { test } from "node:test";
import { placeOf, recordOfRun, recordsOf } from "../../services/web/places.js";
import { match } from "../../services/web/match.js";

test("each kind of id has its page", () => {
  assert.equal(placeOf("r_01m8b4j2d4"), "/runs/r_01m8b4j2d4");
  assert.equal(placeOf("s_01m8b4j2d4"), "/runs?session_id=s_01m8b4j2d4");
  assert.equal(placeOf("def_9a21c6a58643d359"), "/library/version/def_9a21c6a58643d359");
  assert.equal(placeOf("report"), "/runs?prefix=report");
});

test("a record is found by its position, with a colon or a slash before the offset", () => {
  assert.equal(placeOf("loom.run.events/3:1042"), "/log/loom.run.events/3?from=1042");
  assert.equal(placeOf("loom.dead-letter/0/7"), "/log/loom.dead-letter/0?from=7");
});

test("an aggregate leads to its records, also one of no tenant", () => {
  assert.equal(placeOf("budget:/installation"), "/log/aggregate/budget%3A%2Finstallation");
  assert.equal(placeOf("definition:acme/agent/a b"), "/log/aggregate/definition%3Aacme%2Fagent%2Fa%20b");
  assert.equal(placeOf("what: is this"), "/runs?prefix=what%3A%20is%20this");
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
