// The rows of a conversation. `node --test tests/web/`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { groupsOf, noteOf, pendingInputs, previewOf, rowsOf, settledLength } from "../../services/web/pages/run/rows.js";

const frame = (id, type, data = {}) => ({ id, seq: Math.floor(id / 256), type, data: { type, ...data }, at: "live" });
const event = (seq, type, payload = {}) => ({ seq, type, payload, at: `t${seq}`, stale: false });
const call = (id, name, use = "c1", input = { path: "a" }) => frame(id, "tool_call", { tool_use: { id: use, name, input } });
const result = (id, use = "c1", more = {}) => frame(id, "tool_result", { tool_use: { id: use, name: "Read" }, text: "found", ...more });

test("a call and its result are one row, at the place of the call", () => {
  const rows = rowsOf([call(769, "Read"), call(770, "Read", "c2"), result(1792), result(2048, "c2", { is_error: true })], []);
  assert.deepEqual(rows.map(({ kind, state, text, resultSeq }) => [kind, state, text, resultSeq]), [["tool", "ok", "found", 7], ["tool", "error", "found", 8]]);
});

test("an id that a provider gives twice makes two rows", () => {
  const rows = rowsOf([call(769, "Read"), result(1024), call(1281, "Read"), result(1536, "c1", { text: "again" })], []);
  assert.deepEqual(rows.map((row) => row.text), ["found", "again"]);
});

test("records give times, the beginning and the sub-agents; stored frames of the same sub-agent add nothing", () => {
  const events = [
    event(1, "RunStarted", { definition: { name: "a", system_prompt: "Be brief." }, segments: [{ role: "user", content: [{ type: "trusted-text", text: "hello" }] }], continues: { run_id: "r_0" } }),
    event(2, "ModelCallRequested"),
    event(3, "ModelReplied", { turn: 1 }),
    event(4, "ChildRequested", { child_run_id: "r_1", child_agent_id: "a_1", agent: "leaf" }),
    event(5, "ChildReturned", { child_run_id: "r_1", agent: "leaf", status: "completed", text: "hi" }),
  ];
  const live = rowsOf([frame(258, "started"), frame(768, "text", { text: "x" })], events);
  assert.deepEqual(live.map((row) => [row.kind, row.at]), [["origin", "t1"], ["system", "t1"], ["input", "t1"], ["text", "t3"], ["child", "t4"], ["child", "t5"]]);
  const child = { run_id: "r_1", agent: "leaf" };
  const stored = [frame(256, "steer", { user_input: { text: "hello", source: "replay" } }), frame(768, "text", { text: "x" }), frame(1024, "spawn_child_started", { spawn_child: child }), frame(1280, "spawn_child_result", { spawn_child: { ...child, ok: true, output: "hi" } })];
  assert.deepEqual(rowsOf(stored, events).map((row) => row.key), live.map((row) => (row.kind === "text" ? "768" : row.key)));
});

test("what a turn used stands above the turn", () => {
  const rows = rowsOf([frame(256, "steer", { user_input: { text: "u" } }), frame(768, "text", { text: "x" }), call(769, "Read"), frame(770, "usage", { usage: {} })], [event(1, "RunStarted"), event(2, "A"), event(3, "ModelReplied", { turn: 1 })]);
  assert.deepEqual(rows.map((row) => row.kind), ["input", "usage", "text", "tool"]);
  assert.equal(rows[1].turn, 1);
});

test("a question keeps its answer", () => {
  const rows = rowsOf([frame(256, "interruption_pending", { interruption: { interrupt_id: "i", question: "?" } }), frame(512, "interruption_resolved", { interruption: { interrupt_id: "i", status: "resolved", answer: "yes" } })], []);
  assert.equal(rows.length, 1);
  assert.equal(rows[0].answer.answer, "yes");
});

test("rows that have not changed are the same objects, and their groups too", () => {
  const frames = [frame(256, "text", { text: "one" }), call(769, "Read")];
  const first = rowsOf(frames, []);
  const second = rowsOf([...frames, result(1024)], [], first);
  assert.equal(second[0], first[0]);
  assert.notEqual(second[1], first[1]);
  assert.equal(rowsOf(frames, [], first), first);
  const groups = groupsOf(first, [], 1);
  const later = groupsOf(second, groups, 1);
  assert.ok(later[0] === groups[0] && later[1] !== groups[1]);
});

test("inputs wait until the next model call", () => {
  const events = [event(1, "RunStarted"), event(2, "InputReceived", { text: "a" }), event(3, "ModelCallRequested", { attempt: 1 }), event(4, "InputReceived", { text: "b" })];
  assert.deepEqual(pendingInputs(events).map((row) => row.text), ["b"]);
  assert.deepEqual(pendingInputs([...events, event(5, "ModelCallRequested", { attempt: 2 })]).map((row) => row.text), ["b"]);
  assert.deepEqual(pendingInputs([...events, event(5, "RunCancelled")]), []);
});

test("previews are one short line", () => {
  assert.equal(previewOf({ path: "a\nb", lines: 3 }), "path: a b, lines: 3");
  assert.equal(previewOf("x".repeat(500), 20).length, 20);
});

test("every other frame says in words what happened, also one of a later version", () => {
  assert.match(noteOf("retry", { retry: { provider: "p", attempt: 1, wait_ms: 1500, reason: "r" } }).title, /p is asked again \(attempt 2\)/);
  assert.match(noteOf("limit", { limit: { severity: "hard", scope: "user", used: 5, limit: 4 } }).text, /5 of 4/);
  assert.equal(noteOf("something_new", { text: "t" }).title, "something new");
});

test("a growing text settles at empty lines, never inside of a block of code", () => {
  assert.equal(settledLength("one"), 0);
  assert.equal(settledLength("one\n\ntwo"), 5);
  assert.equal(settledLength("one\n\n```py\na\n\nb"), 4);
  assert.equal(settledLength("```py\na\n\nb"), 0);
  assert.equal(settledLength("```\na\n\nb\n```\n\nend"), "```\na\n\nb\n```\n\n".length);
});
