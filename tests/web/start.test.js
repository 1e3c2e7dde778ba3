// A start as it is sent, and the answers of a fan-out. Run with `node --test tests/web`.
import assert from "node:assert/strict";
import { test } from "node:test";
import { answerOf, bodyOf, commandOf, curlOf, emptyDraft, promptsOf, requestsOf } from "../../services/web/pages/start/request.js";

const draft = (more) => ({ ...emptyDraft(), agent: "helper", prompt: "Hello", ...more });

test("a plain start has the agent and the prompt only", () => {
  assert.deepEqual(bodyOf(draft({})), { body: { agent: "helper", prompt: "Hello" }, problems: {} });
});

test("no hosts is an empty list, the operator's hosts are no list", () => {
  assert.deepEqual(bodyOf(draft({ hosts: "none" })).body.allowed_hosts, []);
  assert.equal("allowed_hosts" in bodyOf(draft({})).body, false);
  assert.deepEqual(bodyOf(draft({ hosts: "some", hostList: "a.org, b.org\nc.org" })).body.allowed_hosts, ["a.org", "b.org", "c.org"]);
  assert.ok(bodyOf(draft({ hosts: "some", hostList: " " })).problems.hostList);
});

test("images go with the prompt in one segment of the user", () => {
  const { body } = bodyOf(draft({ images: [{ name: "a.png", media_type: "image/png", data: "AAAA", bytes: 3 }] }));
  assert.equal(body.prompt, undefined);
  assert.deepEqual(body.segments, [{ role: "user", content: [{ type: "trusted-text", text: "Hello" }, { type: "image", media_type: "image/png", data: "AAAA" }] }]);
});

test("what is wrong is said by field", () => {
  assert.deepEqual(Object.keys(bodyOf(emptyDraft()).problems), ["agent", "prompt"]);
  for (const [field, value] of Object.entries({ metadata: "[1]", timeout: "1.5", session_id: "s 1" })) assert.ok(bodyOf(draft({ [field]: value })).problems[field], field);
  assert.match(bodyOf(draft({ metadata: "{" })).problems.metadata, /not JSON/);
});

test("texts are quoted for a shell, and images are named instead of repeated", () => {
  assert.equal(commandOf({ agent: "helper", prompt: "it's $HOME" }).command, "loomlog run helper 'it'\\''s $HOME'");
  assert.deepEqual(commandOf({ agent: "helper", prompt: "x", metadata: {}, session_id: "s_1" }).left, ["metadata"]);
  const curl = curlOf("http://h", "/v1/runs", { data: "A".repeat(100), prompt: "a'b" });
  assert.ok(curl.includes("BASE64 OF THE IMAGE") && curl.includes("a'\\''b"));
});

test("prompts are lines, blocks, or one text several times", () => {
  assert.deepEqual(promptsOf("a\n\n b \n", "lines", 0), ["a", "b"]);
  assert.deepEqual(promptsOf("a\nb\n \nc", "blocks", 0), ["a\nb", "c"]);
  assert.deepEqual(promptsOf(" a ", "times", 3), ["a", "a", "a"]);
  assert.deepEqual(promptsOf("a", "times", NaN), []);
});

test("a fan-out is sent in requests of 32", () => {
  assert.deepEqual(requestsOf(Array(70).fill(0)).map((one) => one.length), [32, 32, 6]);
});

test("the answer of a run is the first line of its last text", () => {
  const frames = [{ type: "text", event: { text: "before" } }, { type: "text", event: { text: "\nanswer\nmore" } }, { type: "text", event: { text: " " } }, { type: "done", event: {} }];
  assert.equal(answerOf(frames), "answer");
  assert.equal(answerOf([]), "");
});
