// Forks as they are asked for, over records of a real run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { EMPTY_FORK, bodyOf, commandOf, forkPoints, problemsOf } from "../../services/web/pages/run/fork_model.js";

const events = JSON.parse(readFileSync(new URL("events_interactive.json", import.meta.url), "utf8"));
const form = (more) => ({ ...EMPTY_FORK, at: 7, ...more });

test("a fork may begin before the call of every turn, and at the newest record", () => {
  const points = forkPoints(events);
  assert.deepEqual(points.map((point) => point.turn), [0, 8, 7, 6, 5, 4, 3, 2, 1]);
  assert.equal(points[0].seq, events.length);
  for (const { seq, turn } of points.slice(1)) assert.deepEqual([events[seq].type, events[seq].payload.turn], ["ModelCallRequested", turn]);
});

test("what is left empty is not sent", () => {
  assert.deepEqual(bodyOf(form({})), { at: 7 });
  assert.deepEqual(bodyOf(form({ model: " big ", temperature: "0", maxTokens: "50", interactive: "no", prompt: "Go on" })), {
    at: 7, prompt: "Go on", interactive: false, overrides: { model: "big", temperature: 0, max_tokens: 50 },
  });
});

test("another agent wins over a definition of this one", () => {
  assert.deepEqual(bodyOf(form({ agent: "other", definition: "current" })), { at: 7, agent: "other" });
  assert.deepEqual(bodyOf(form({ definition: "current" })), { at: 7, definition: "current" });
});

test("problems name their field", () => {
  assert.deepEqual(Object.keys(problemsOf(form({ maxTokens: "many", temperature: "3" }), true)), ["prompt", "maxTokens", "temperature"]);
  assert.deepEqual(problemsOf(form({ prompt: "x" }), true), {});
});

test("the command line is one that a shell reads as it was meant", () => {
  assert.equal(commandOf("r_1", form({ prompt: "it's $HOME", model: "m-1" })), `loomlog runs fork r_1 --at 7 --prompt 'it'\\''s $HOME' --set model=m-1`);
});
