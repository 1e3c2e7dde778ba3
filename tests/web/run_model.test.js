// The pure part of a run's page: frames put together from previews, records without gaps, turns. `node --test tests/web/`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NO_PREVIEW, appendEvents, busyWith, isFailure, marksOf, takeFrames, turnsOf, upTo, waitOf } from "../../services/web/pages/run/model.js";

const preview = (event, text) => ({ id: "", event, data: { type: event, text } });
const frame = (id, event, data = {}) => ({ id: String(id), event, data: { type: event, ...data } });
const take = (received, before = NO_PREVIEW, last = -1) => takeFrames(before, last, received, "2026-01-01T00:00:00.000Z");
const brief = (frames) => frames.map(({ id, type, data }) => (data.text === undefined ? [id, type] : [id, type, data.text]));

test("previews become the text of the turn, under the ids of its stored frames", () => {
  const first = take([preview("thinking", "hm"), preview("text", "Good "), preview("text", "day")]);
  assert.deepEqual(first.frames, []);
  assert.deepEqual(first.preview, { text: "Good day", thinking: "hm", isStale: false });
  const second = take([frame(770, "usage", { usage: {} })], first.preview, first.last);
  assert.deepEqual(brief(second.frames), [[768, "thinking", "hm"], [769, "text", "Good day"], [770, "usage"]]);
  assert.deepEqual(second.preview, NO_PREVIEW);
});

test("a text frame after previews has only the rest", () => {
  const { frames } = take([preview("text", "Good "), frame(768, "text", { text: "day" }), frame(769, "tool_call", { tool_use: {} })]);
  assert.deepEqual(brief(frames), [[768, "text", "Good day"], [769, "tool_call"]]);
});

test("after a broken connection the turn is sent anew and nothing is doubled", () => {
  const stale = { text: "Good ", thinking: "", isStale: true };
  assert.deepEqual(brief(take([frame(768, "text", { text: "Good day" })], stale).frames), [[768, "text", "Good day"]]);
  assert.equal(take([preview("text", "Good")], stale).preview.text, "Good");
  assert.deepEqual(brief(take([frame(256, "started"), frame(512, "usage")], NO_PREVIEW, 256).frames), [[512, "usage"]]);
});

test("a retry and a fallback begin the text again", () => {
  for (const type of ["retry", "provider_fallback"]) {
    const { frames, preview: after } = take([preview("text", "lost"), frame(1024, type), preview("text", "kept")]);
    assert.deepEqual(brief(frames), [[1024, type]]);
    assert.equal(after.text, "kept");
  }
});

test("a cancelled turn keeps its text, not its reasoning", () => {
  const { frames } = take([preview("thinking", "hm"), preview("text", "half"), frame(1281, "turn_cancelled")]);
  assert.deepEqual(brief(frames), [[1280, "text", "half"], [1281, "turn_cancelled"]]);
});

const event = (seq, type, payload = {}, more = {}) => ({ seq, type, payload, at: "", stale: false, ...more });

test("records are appended once, in order, without a gap", () => {
  const known = [event(1, "RunStarted")];
  assert.equal(appendEvents(known, [event(1, "RunStarted")]), known);
  assert.deepEqual(appendEvents(known, [event(1, "A"), event(2, "B"), event(2, "B", {}, { stale: true }), event(4, "D")]).map((one) => one.seq), [1, 2]);
});

test("turns know their calls, how these ended and what is under way", () => {
  const events = [
    event(1, "RunStarted"),
    event(2, "ModelCallRequested", { turn: 1, attempt: 1, model: "m" }),
    event(3, "ModelCallFailed", { turn: 1, attempt: 1 }),
    event(4, "ModelCallRequested", { turn: 1, attempt: 2, model: "m" }),
  ];
  assert.equal(busyWith(turnsOf(events)), "waits for the model");
  events.push(event(5, "ModelReplied", { turn: 1, attempt: 2, tool_calls: [{ id: "a", name: "Read" }] }), event(6, "ToolCallRequested", { turn: 1, index: 0, call_id: "a", attempt: 1 }));
  assert.equal(busyWith(turnsOf(events)), "runs Read");
  events.push(event(7, "ToolReturned", { turn: 1, index: 0, call_id: "a", is_error: true }), event(8, "ModelCallRequested", { turn: 2, attempt: 1, model: "m" }));
  const turns = turnsOf(events);
  assert.deepEqual(turns.map(({ turn, fromSeq, toSeq }) => [turn, fromSeq, toSeq]), [[1, 2, 7], [2, 8, 8]]);
  assert.deepEqual(turns[0].calls.map(({ kind, name, isOpen, isError }) => [kind, name, isOpen, isError]), [["model", "m", false, true], ["model", "m", false, false], ["tool", "Read", false, true]]);
});

test("failures are told from what merely ended", () => {
  assert.ok(isFailure(event(1, "ToolReturned", { is_error: true })));
  assert.ok(!isFailure(event(1, "ToolReturned", { is_error: false })));
  assert.ok(isFailure(event(1, "ModelCallFailed")) && !isFailure(event(1, "RunCancelled")));
});

test("a run says what it waits for, and nothing when it is at work or has ended", () => {
  const run = { status: "running", under_way: [] };
  const waiting = [event(1, "RunStarted"), event(2, "CallWaiting", { call_id: "c", until_ms: 0, queues: [{ channel: "news" }, { channel: "news" }] })];
  assert.equal(waitOf(run, []), null);
  assert.equal(waitOf({ ...run, status: "completed", paused: true }, []), null);
  assert.deepEqual([waitOf({ ...run, paused: true, pause_reason: "night" }, []).word, waitOf({ ...run, paused: true, pause_reason: "night" }, []).why], ["paused", "night"]);
  assert.equal(waitOf({ ...run, awaited_state: "interrupted" }, []).word, "an answer");
  assert.equal(waitOf({ ...run, parked: true }, []).word, "input");
  assert.equal(waitOf(run, waiting).word, "a message of news");
  assert.equal(waitOf(run, [...waiting, event(3, "ToolReturned", { call_id: "c" })]), null);
  assert.equal(waitOf({ ...run, under_way: ["@0"] }, []).word, "its sub-agents");
});

test("marks show where turns begin and what failed, a bounded number of them", () => {
  const events = [event(1, "RunStarted"), event(2, "ModelCallRequested", { attempt: 1 }), event(3, "ModelCallFailed"), event(4, "ModelCallRequested", { attempt: 2 }), event(5, "RunFailed")];
  assert.deepEqual(marksOf(events, 100).map((mark) => [mark.kind, mark.seq, mark.at]), [["turn", 2, 0.25], ["failure", 3, 0.5], ["failure", 5, 1]]);
  const many = Array.from({ length: 5_000 }, (_, at) => event(at + 1, "ModelCallRequested", { attempt: 1 }));
  assert.ok(marksOf(many, 100).length <= 101);
});

test("a moment cuts what came after it", () => {
  const list = [1, 1, 2, 5].map((seq) => ({ seq }));
  assert.deepEqual([null, 0, 1, 3, 5, 9].map((at) => upTo(list, at).length), [4, 0, 2, 3, 4, 4]);
});
