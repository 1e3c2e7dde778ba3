// What a model saw at a turn, over records of real runs.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { asText, callAt, callBefore, callsOf, changesOf, parametersOf, sharesOf } from "../../services/web/pages/run/context_model.js";

const read = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, import.meta.url), "utf8"));
const interactive = callsOf(read("events_interactive"));
const user = (text) => ({ role: "user", content: [{ type: "text", text }] });
const kinds = (rows) => rows.map((row) => `${row.kind[0]}${row.message.content[0].text}`).join(" ");

test("each call of the model is found with its tokens, and a compaction belongs to the call after it", () => {
  assert.deepEqual(interactive.map((call) => call.turn), [1, 2, 3, 4, 5, 6, 7, 8]);
  assert.ok(interactive.every((call) => call.usage.input_tokens > 0));
  assert.deepEqual(interactive.map((call) => call.compactions.length), [0, 0, 0, 0, 0, 0, 1, 0]);
});

test("of a turn with retries the last attempt is shown unless another is named", () => {
  const calls = callsOf(read("events_retries"));
  assert.deepEqual([callAt(calls, 1, 0).attempt, callAt(calls, 1, 2).attempt, callAt(calls, 0, 0).attempt, callAt(calls, 9, 0)], [3, 2, 3, null]);
  assert.ok(calls.every((call) => call.isFailed));
});

test("a call is compared with the turn before, not with another attempt of its own turn", () => {
  assert.equal(callBefore(interactive, interactive[3]).turn, 3);
  assert.equal(callBefore(interactive, interactive[0]), null);
  const calls = callsOf(read("events_fallback"));
  assert.equal(callBefore(calls, calls[1]), null);
  assert.equal(calls[1].switched.failed_model, "scripted-1");
});

test("messages that came are added, those that a compaction took are removed, in their places", () => {
  const [a, b, c, d, s] = ["a", "b", "c", "d", "summary"].map(user);
  assert.equal(kinds(changesOf([a, b], [a, b, c])), "sa sb ac");
  assert.equal(kinds(changesOf([a, b, c, d], [s, c, d])), "ra rb asummary sc sd");
  assert.equal(kinds(changesOf([], [a])), "aa");
  assert.equal(kinds(changesOf([a], [])), "ra");
  assert.deepEqual(changesOf([a, b, c], [s, c]).map((row) => row.at), [0, 1, 0, 1]);
});

test("a message of several lines is one message", () => {
  assert.equal(changesOf([user("a\nb")], [user("a\nc")]).length, 2);
});

test("shares count every part once", () => {
  const state = { system: ["1234"], messages: [user("12"), { role: "assistant", content: [{ type: "text", text: "123" }, { type: "tool_use", name: "X", input: "{}" }] }, { role: "user", content: [{ type: "tool_result", name: "X", text: "12345" }] }] };
  assert.deepEqual(sharesOf(state), { system: 4, user: 2, assistant: 3, calls: 3, results: 6 });
  assert.match(asText({ ...state, definition: { tools: ["X"] } }, interactive[0]), /tools X\n\nsystem: 1234\n\nuser:\n12\n\nassistant:\n123\ncalls X \{\}/);
});

test("only parameters that are set are shown", () => {
  assert.deepEqual(parametersOf({ effort: "", max_tokens: 500, sampling: { temperature: 0, top_p: null, stop: [] }, compaction: { keep_last_n: 4, provider: "" } }), [
    { name: "max tokens", value: "500" },
    { name: "temperature", value: "0" },
    { name: "compaction keep last n", value: "4" },
  ]);
});
