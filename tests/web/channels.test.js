// The rules of the pages of channels, without a page.
import assert from "node:assert/strict";
import test from "node:test";
import { declarationBody, filtered, formatKept, parsePayload, publisherOf, withNewer } from "../../services/web/pages/channels/model.js";
import { oneLine, toRfc3339 } from "../../services/web/values.js";

test("a payload is any JSON value but null", () => {
  assert.deepEqual(parsePayload('{"a": [1]}'), { value: { a: [1] } });
  assert.deepEqual(parsePayload("0"), { value: 0 });
  assert.deepEqual(parsePayload('""'), { value: "" });
  assert.match(parsePayload("null").problem ?? "", /null/);
  assert.match(parsePayload("  ").problem ?? "", /JSON/);
  assert.match(parsePayload("{a").problem ?? "", /not JSON/);
});

test("a message in one line is cut and has no breaks", () => {
  assert.equal(oneLine("a\n\tb"), "a b");
  assert.equal(oneLine({ a: 1 }), '{"a":1}');
  assert.equal(oneLine("x".repeat(300), 10), `${"x".repeat(10)}…`);
  assert.equal(oneLine("x".repeat(10), 10), "x".repeat(10));
});

test("what comes in is put in front, newest first, and none twice", () => {
  const row = (id) => ({ id });
  const before = [row("c"), row("b"), row("a")];
  assert.deepEqual(withNewer(before, [row("b"), row("c"), row("d"), row("e"), row("e")]).map((one) => one.id), ["e", "d", "c", "b", "a"]);
  assert.equal(withNewer(before, [row("a")]), before);
});

test("how long messages are kept is told in the largest whole unit", () => {
  assert.deepEqual([0, 45, 90, 600, 3_600, 86_400, 604_800, 90_000].map(formatKept), ["30 d", "45 s", "90 s", "10 min", "1 h", "1 d", "7 d", "25 h"]);
});

test("who publishes", () => {
  assert.equal(publisherOf({ name: "orders", publisher: "", period: "" }), "anyone allowed");
  assert.equal(publisherOf({ name: "plaza", publisher: "", period: "", scope: "global" }), "administrators, agents");
  assert.equal(publisherOf({ name: "wall", publisher: "any", period: "", scope: "global" }), "anyone allowed");
  assert.equal(publisherOf({ name: "bulletin", publisher: "system", period: "1h" }), "system, every 1h");
  assert.equal(publisherOf({ name: "_system/runtime-state", publisher: "", period: "" }), "system");
});

test("filters take scope, source and words of name or description", () => {
  const rows = [
    { name: "orders", description: "Of the Shop", scope: "tenant", source: "yaml" },
    { name: "inbox", description: "", scope: "user", source: "runtime" },
  ];
  const names = (filters) => filtered(rows, { text: "", scope: "", source: "", ...filters }).map((one) => one.name);
  assert.deepEqual(names({}), ["orders", "inbox"]);
  assert.deepEqual(names({ text: " shop " }), ["orders"]);
  assert.deepEqual(names({ scope: "user" }), ["inbox"]);
  assert.deepEqual(names({ source: "yaml", text: "inbox" }), []);
});

test("a new channel sends what was given, a change only what differs", () => {
  const form = { name: " orders ", scope: "tenant", description: "", semantic: "queue", default_ttl: "", max_messages: "" };
  assert.deepEqual(declarationBody(form, null), { name: "orders", scope: "tenant", semantic: "queue" });
  assert.deepEqual(declarationBody({ ...form, default_ttl: "7d", max_messages: "5" }, null), { name: "orders", scope: "tenant", semantic: "queue", default_ttl: "7d", max_messages: 5 });
  const row = { description: "", semantic: "queue", default_ttl: 60, max_messages: 5 };
  assert.deepEqual(declarationBody({ ...form, default_ttl: "60", max_messages: "5" }, row), {});
  assert.deepEqual(declarationBody({ ...form, default_ttl: "", max_messages: "" }, row), { default_ttl: 0, max_messages: 0 });
  assert.deepEqual(declarationBody({ ...form, default_ttl: "60", max_messages: "5", description: "new" }, row), { description: "new" });
});

test("a local time becomes one of RFC 3339", () => {
  assert.equal(toRfc3339(""), "");
  assert.equal(toRfc3339("soon"), "");
  assert.equal(toRfc3339("2026-11-26T09:00"), new Date("2026-11-26T09:00").toISOString());
});
