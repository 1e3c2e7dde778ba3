// What the pages of access send, and the words for the state of a token.
import assert from "node:assert/strict";
import { test } from "node:test";

import { bodyOf, tokenState } from "../../services/web/pages/access/model.js";

const NOW = Date.parse("2026-03-01T12:00:00Z");

test("a form sends its fields trimmed, and leaves out what is empty", () => {
  assert.deepEqual(bodyOf({ name: " ci ", subject: " ", scopes: ["runs:read"], supersede_shared: false }), { name: "ci", scopes: ["runs:read"] });
  assert.deepEqual(bodyOf({ supersede_shared: true, import_token: "" }), { supersede_shared: true });
});

test("the state of a token says why it gives no access", () => {
  assert.deepEqual(tokenState({ active: true }, NOW), ["good", "in force"]);
  assert.deepEqual(tokenState({ active: true, retired: true, retired_at: "2026-03-02T12:00:00Z" }, NOW), ["warn", "rotated"]);
  assert.deepEqual(tokenState({ active: false, retired: true, retired_at: "2026-02-02T12:00:00Z" }, NOW), ["", "retired"]);
  assert.deepEqual(tokenState({ active: false, expires_at: "2026-02-02T12:00:00Z" }, NOW), ["", "expired"]);
  assert.deepEqual(tokenState({ active: false }, NOW), ["", "without effect"]);
});
