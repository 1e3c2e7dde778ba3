// Operations: availability as words, and the template of variables as rows.
import assert from "node:assert/strict";
import { test } from "node:test";

import { modelState, stateOf } from "../../services/web/pages/operations/routing_model.js";
import { settingsOf } from "../../services/web/pages/operations/settings_model.js";

const choice = (changes) => ({ provider: "p", model: "m", available: false, selected: false, stalled: false, rate_limited: false, reachable: true, ...changes });

test("only the model that is taken is good, another available one waits for its turn", () => {
  assert.equal(stateOf(choice({ available: true, selected: true }))[0], "good");
  assert.equal(stateOf(choice({ available: true }))[0], "info");
});

test("a choice that is not available says why, the provider first", () => {
  assert.match(stateOf(choice({ reachable: false, rate_limited: true }))[2], /does not answer/);
  assert.match(stateOf(choice({ rate_limited: true }))[2], /limits the rate/);
  assert.match(stateOf(choice({ stalled: true }))[2], /no answer/);
  assert.match(stateOf(choice({}))[2], /does not list/);
});

test("a model of a provider that cannot be used is not a problem of the model", () => {
  const model = { listed: true, stalled: true, rate_limited: false, reason: "timed out" };
  assert.equal(modelState(model, { excluded: true, reachable: false })[0], "");
  assert.deepEqual(modelState(model, { excluded: false, reachable: true }), ["warn", "timer", "its last calls had no answer: timed out"]);
  assert.equal(modelState({ ...model, stalled: false }, { excluded: false, reachable: true })[0], "good");
});

test("variables have the text above them, their default and their part", () => {
  const template = `# Settings of loomlog. Take the # away.
# Secrets belong in a file.

# --- Process ---

# Where the API listens.
# Two lines. (host:port)
# LOOMLOG_LISTEN_ADDR=127.0.0.1:8787

# --- Access ---

# The token.
# LOOMLOG_AUTH_TOKEN=
`;
  assert.deepEqual(settingsOf(template), [
    { name: "LOOMLOG_LISTEN_ADDR", initial: "127.0.0.1:8787", what: "Where the API listens. Two lines. (host:port)", group: "Process" },
    { name: "LOOMLOG_AUTH_TOKEN", initial: "", what: "The token.", group: "Access" },
  ]);
});
