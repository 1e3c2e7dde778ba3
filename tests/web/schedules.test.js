// The rules of the pages of schedules, without a page.
import assert from "node:assert/strict";
import test from "node:test";
import { catchUpWords, entryOf, fireOf, isForever, listed, overlayOf, promptText, stateOf, withFirstPage } from "../../services/web/pages/schedules/model.js";

const NOW = Date.parse("2026-11-26T12:00:00Z");
const state = (more = {}) => ({ running: [], queued: [], fires: 0, max_fires: 0, times: "@hourly", is_enabled: true, problem: "", agent: "soaker", ...more });
const entry = (name, more = {}, id = `def_${name}`) => ({ name, tenant_id: "acme", active_def_id: id, state: state(more) });

test("how a schedule is", () => {
  const key = (one) => stateOf(one, NOW)[0];
  assert.equal(key(entry("a")), "active");
  assert.equal(stateOf(entry("a", { running: ["r_1"] }), NOW)[2], "runs now");
  assert.equal(key(entry("a", { paused_until: "2026-11-27T00:00:00Z" })), "paused");
  assert.equal(key(entry("a", { paused_until: "2026-11-26T00:00:00Z" })), "active");
  assert.equal(key(entry("a", { is_enabled: false })), "off");
  assert.equal(key(entry("a", { max_fires: 3, fires: 3 })), "done");
  assert.equal(key(entry("a", { times: "" })), "template");
  assert.deepEqual(stateOf(entry("a", { problem: "no key" }), NOW).slice(0, 1).concat(stateOf(entry("a", { problem: "no key" }), NOW)[3]), ["problem", "no key"]);
  assert.equal(key({ ...entry("a"), active_def_id: "" }), "idle");
  assert.equal(key({ ...entry("a"), state: undefined }), "idle");
});

test("a pause without an end is one of a hundred years", () => {
  assert.equal(isForever("2126-11-26T12:00:00Z"), true);
  assert.equal(isForever(new Date(Date.now() + 86_400_000).toISOString()), false);
  assert.equal(isForever(undefined), false);
});

test("those that fire next come first, those without a time last, by name", () => {
  const rows = [entry("z"), entry("b", { next_run_at: "2026-11-26T14:00:00Z" }), entry("c", { next_run_at: "2026-11-26T13:00:00Z" }), entry("a")];
  const names = (filters) => listed(rows, { text: "", state: "", ...filters }, NOW).map((one) => one.name);
  assert.deepEqual(names({}), ["c", "b", "a", "z"]);
  assert.deepEqual(names({ text: "SOAKER" }), ["c", "b", "a", "z"]);
  assert.deepEqual(names({ text: "b" }), ["b"]);
  assert.deepEqual(names({ state: "paused" }), []);
});

test("an address names a schedule by its version or its name, in a tenant", () => {
  const rows = [{ ...entry("nightly"), tenant_id: "acme" }, { ...entry("nightly", {}, "def_2"), tenant_id: "globex" }];
  assert.equal(entryOf(rows, "def_2", "")?.tenant_id, "globex");
  assert.equal(entryOf(rows, "nightly", "globex")?.tenant_id, "globex");
  assert.equal(entryOf(rows, "nightly", "")?.tenant_id, "acme");
  assert.equal(entryOf(rows, "nothing", ""), null);
});

test("fires and times that passed are told apart", () => {
  assert.deepEqual(fireOf({ status: "failed", run_id: "r_1", fired_at: "t", error: "no agent" }), { key: "r_1/t", tone: "bad", word: "failed", why: "no agent" });
  const passed = fireOf({ status: "skipped", instant: "i", count: 3, is_at_least: true, reason: "overlap" });
  assert.equal(passed.word, "at least 3 times passed");
  assert.equal(passed.why, "a run of it still worked");
  assert.equal(fireOf({ status: "skipped", instant: "i", count: 1, reason: "paused" }).word, "1 time passed");
});

test("a newer first page replaces what it has and keeps what was read further", () => {
  const fire = (id, status = "completed") => ({ run_id: id, fired_at: id, status });
  const rows = [fire("b", "running"), fire("a")];
  const merged = withFirstPage(rows, [fire("c"), fire("b")]);
  assert.deepEqual(merged.map((one) => [one.run_id, one.status]), [["c", "completed"], ["b", "completed"], ["a", "completed"]]);
});

test("a new schedule says only what was given", () => {
  const form = { name: "x", agent: " soaker ", times: " 0 9 * * 1 ", timezone: "Europe/Berlin", prompt: "", user_id: "", overlap: "skip" };
  assert.deepEqual(overlayOf(form), { agent: "soaker", schedule: "0 9 * * 1", timezone: "Europe/Berlin" });
  assert.deepEqual(overlayOf({ ...form, times: "@every 5m", prompt: "go", user_id: "ann", overlap: "allow" }), {
    agent: "soaker",
    schedule: "@every 5m",
    prompt: [{ role: "user", content: [{ type: "trusted-text", text: "go" }] }],
    user_id: "ann",
    overlap: "allow",
  });
  assert.equal(promptText(overlayOf({ ...form, prompt: "a\nb" }).prompt), "a\nb");
});

test("catch-up in words", () => {
  assert.match(catchUpWords(0), /left out/);
  assert.match(catchUpWords(1), /one run/);
  assert.match(catchUpWords(4), /latest 4/);
});
