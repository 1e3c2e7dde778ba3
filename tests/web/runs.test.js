// The list of runs: its filter and its rows. Run with `node --test tests/web`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { addressOf, apiQueryOf, commandOf, filterOf, fits, whereOf } from "../../services/web/pages/runs/filter.js";
import { applyFrames, applyReadings, insertRows, rowOf, waitText } from "../../services/web/pages/runs/rows.js";

const NOW = Date.parse("2026-01-02T12:00:00Z");
const filter = (text) => filterOf(new URLSearchParams(text));
const run = (id, more = {}) => rowOf({ run_id: id, agent_id: `a_${id}`, agent: "helper", status: "running", started_at: `2026-01-02T11:00:0${id.slice(-1)}.000Z`, position: "loom.run.events/0:10", usage: { input_tokens: 5, output_tokens: 2 }, ...more });

test("an address is read and written in one order, without unknown names", () => {
  assert.equal(addressOf(filter("user_id=ann&status=failed&other=1&agent=helper")), "status=failed&agent=helper&user_id=ann");
  assert.equal(filter("waits=nothing").waits, "");
});

test("a time that counts back becomes a moment for the API", () => {
  assert.equal(apiQueryOf(filter("from=24h"), NOW).from, "2026-01-01T12:00:00.000Z");
  assert.equal(apiQueryOf(filter("from=2026-01-01T00:00:00Z"), NOW).from, "2026-01-01T00:00:00Z");
});

test("what a live run waits for is asked for without a status", () => {
  const query = apiQueryOf(filter("waits=interrupted&status=failed"), NOW);
  assert.deepEqual([query.status, query.waiting], ["", "interrupted"]);
});

test("a run of the stream is in the list only if the whole filter fits it", () => {
  const row = run("r_1", { user_id: "ann", tenant_id: "acme" });
  assert.ok(fits(row, filter("agent=helper&user_id=ann&from=2h&id=r_"), NOW));
  for (const other of ["agent=other", "user_id=bob", "tenant=globex", "status=failed", "from=30m", "to=2026-01-02T10:00:00Z", "id=x", "waits=interrupted"]) assert.ok(!fits(row, filter(other), NOW), other);
});

test("a filter becomes a where of one order, or says what cannot be said", () => {
  assert.equal(whereOf(filter("agent=helper&from=1h"), NOW).where, "status=running,agent=helper,newer_than=3600s");
  assert.equal(whereOf(filter("waits=awaiting_input"), NOW).where, "status=parked");
  assert.equal(whereOf(filter("id=r_1"), NOW).where, "");
  assert.equal(whereOf(filter("user_id=a,b"), NOW).where, "");
  assert.match(whereOf(filter("status=failed"), NOW).problem, /have ended/);
});

test("a command line quotes what a shell would read", () => {
  assert.equal(commandOf(filter("user_id=a b'c"), NOW), "loomlog runs ls --user 'a b'\\''c'");
});

test("a frame changes its row in its place, and an older reading changes nothing", () => {
  const rows = [run("r_2"), run("r_1")];
  const ended = { run_id: "r_1", status: "completed", completed_at: "2026-01-02T11:00:09Z", iterations: 3, usage: { input_tokens: 50, output_tokens: 20 }, position: "loom.run.events/0:12" };
  const after = applyFrames(rows, [ended]);
  assert.deepEqual(after.rows.map((row) => [row.run_id, row.status, row.input_tokens]), [["r_2", "running", 5], ["r_1", "completed", 50]]);
  assert.equal(after.rows[0], rows[0]);
  const stale = applyReadings(after.rows, [run("r_1", { position: "loom.run.events/0:11" })]);
  assert.equal(stale.rows, after.rows);
  const newer = applyReadings(after.rows, [run("r_1", { status: "completed", tool_calls: 4, position: "loom.run.events/0:12" })]);
  assert.equal(newer.rows[1].tool_calls, 4);
});

test("frames of runs that are not in the list come back as rows, newest first", () => {
  const frames = [
    { ...run("r_3"), position: "loom.run.events/0:13" },
    { ...run("r_4"), position: "loom.run.events/0:14" },
    { run_id: "r_3", status: "failed", error: "no", position: "loom.run.events/0:15" },
  ];
  const { rows, unknown } = applyFrames([run("r_1")], frames);
  assert.equal(rows.length, 1);
  assert.deepEqual(unknown.map((row) => [row.run_id, row.status]), [["r_4", "running"], ["r_3", "failed"]]);
});

test("rows are put in at their places, and never twice", () => {
  const rows = [run("r_4"), run("r_2"), run("r_1")];
  assert.deepEqual(insertRows(rows, [run("r_3"), run("r_5"), run("r_4")]).map((row) => row.run_id), ["r_5", "r_4", "r_3", "r_2", "r_1"]);
  assert.equal(insertRows(rows, []), rows);
});

test("a hundred thousand rows take a frame without being copied when nothing changes", () => {
  const rows = Array.from({ length: 100_000 }, (_, at) => ({ run_id: `r_${at}`, started_at: "", position: "" }));
  assert.equal(applyFrames(rows, [{ run_id: "other", started_at: "x" }]).rows, rows);
});

test("what a run waits for is said in its own words", () => {
  assert.equal(waitText(run("r_1", { awaited_state: "interrupted" })), "an answer");
  assert.equal(waitText(run("r_1", { pause_requested: true, pause_reason: "budget" })), "paused: budget");
  assert.equal(waitText(run("r_1", { status: "failed", error: "no key" })), "no key");
  assert.equal(waitText(run("r_1", { under_way: ["model"] })), "model");
});
