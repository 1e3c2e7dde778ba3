// The library's rules without a page: texts of definitions, overlays of forks, lineages.
import assert from "node:assert/strict";
import test from "node:test";
import { KINDS, definitionPath, kindNamed } from "../../services/web/pages/library/kinds.js";
import { DRAWN_MAX, allVersions, lineageNodes, missingIds, versionState, versionTitle } from "../../services/web/pages/library/lineage.js";
import { teamNodes } from "../../services/web/pages/library/team.js";
import { editable, loadYaml, overlayOf, parseText, toYaml } from "../../services/web/pages/library/text.js";

await loadYaml();
const version = (number, parent = 0, more = {}) => ({ def_id: `def_${number}`, version: number, parent_def_id: parent ? `def_${parent}` : "", retired: false, ...more });
const drawn = (versions, active = null) => lineageNodes(versions, active, (one) => `/${one.def_id}`, () => "when");

test("a text that was written is read again as it was", () => {
  const value = { model: "m", system_prompt: "first\n  second\n", tools: ["Read", "yes", "2026-01-01", "1e3"], sampling: { temperature: 0.5, top_p: null } };
  assert.deepEqual(parseText(toYaml(value)), value);
  assert.match(toYaml(value), /system_prompt: \|\n/);
});

test("equal values have equal texts, whatever the order of their keys", () => {
  assert.equal(toYaml({ b: 1, a: { d: 2, c: 3 } }, { sorted: true }), toYaml({ a: { c: 3, d: 2 }, b: 1 }, { sorted: true }));
});

test("JSON is read too, and words of YAML stay words", () => {
  assert.deepEqual(parseText('{"enabled": true, "at": "no"}'), { enabled: true, at: "no" });
  assert.deepEqual(parseText("at: 2026-01-01\nanswer: yes"), { at: "2026-01-01", answer: "yes" });
  assert.deepEqual(parseText(" "), {});
  assert.deepEqual(parseText("# nothing but a comment"), {});
  assert.throws(() => parseText("a: 1\n---\nb: 2"), /one document/);
});

test("integers keep all their digits through the editor", () => {
  const text = '{"big": 9007199254740993, "small": 7, "least": -123456789012345678901, "words": "9007199254740993", "part": 0.5}';
  const read = parseText(text);
  assert.deepEqual(read, { big: 9007199254740993n, small: 7, least: -123456789012345678901n, words: "9007199254740993", part: 0.5 });
  assert.match(toYaml(read), /^big: 9007199254740993$/m);
  assert.deepEqual(parseText(toYaml(read)), read);
  assert.deepEqual(overlayOf(read, parseText(toYaml(read).replace("993", "995"))), { big: 9007199254740995n });
  assert.match(toYaml({ answer: "yes", at: "2026-01-01" }), /answer: 'yes'\nat: '2026-01-01'/); // for readers that take them for something else
});

test("a wrong text says the line, and what is no object is refused", () => {
  assert.throws(() => parseText("model: m\n  tools: ["), /^Error: Line 2: /);
  assert.throws(() => parseText("- a"), /a list/);
  assert.throws(() => parseText("just words"), /a single value/);
  assert.throws(() => parseText("a: 1\na: 2"), /Line 2: .*duplicated/);
});

test("aliases that repeat without end are refused", () => {
  const lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"];
  for (let at = 1; at < 9; at += 1) lines.push(`a${at}: &a${at} [${Array(9).fill(`*a${at - 1}`).join(",")}]`);
  assert.throws(() => parseText(lines.join("\n")), /100,000 values/);
});

test("a fork gives what differs, and what was taken out as empty", () => {
  const before = { model: "m", tools: ["Read"], system_prompt: "a", max_tokens: 5, internal: true, sampling: { seed: 1 } };
  assert.deepEqual(overlayOf(before, { ...before }), {});
  assert.deepEqual(overlayOf(before, { ...before, system_prompt: "b", effort: "low" }), { system_prompt: "b", effort: "low" });
  assert.deepEqual(overlayOf(before, { model: "m" }), { tools: [], system_prompt: "", max_tokens: 0, internal: false, sampling: {} });
});

test("keys that exclude those of the parent need not be emptied", () => {
  const alternatives = kindNamed("agent")?.alternatives;
  assert.deepEqual(overlayOf({ provider: "p", model: "m" }, { tier: "low" }, alternatives), { tier: "low" });
  assert.deepEqual(overlayOf({ provider: "p", model: "m" }, { model: "n" }, alternatives), { model: "n", provider: "" });
});

test("every kind has an example that can be written as text", () => {
  assert.equal(new Set(KINDS.map((kind) => kind.kind)).size, 10);
  for (const kind of KINDS) assert.deepEqual(parseText(toYaml(kind.example)), kind.example);
  assert.equal(kindNamed("nothing"), null);
});

test("the path of a definition keeps the slashes of its name and encodes the rest", () => {
  assert.equal(definitionPath("agent", "doc/a b?"), "/library/agent/doc/a%20b%3F");
});

test("versions of several answers become one list, the file last", () => {
  const own = [version(2, 1), version(1, 0, { parent_def_id: "def_s" })];
  const shared = { def_id: "def_s", version: 7, parent_def_id: "", retired: true };
  assert.deepEqual(missingIds(own, "def_2"), ["def_s"]);
  const all = allVersions(own, [{ root: shared, ancestors: [shared], descendants: [own[0]] }], "def_file");
  assert.deepEqual(all.map(versionTitle), ["version 2", "version 1", "shared version 7", "file"]);
  assert.deepEqual(missingIds(all, "def_file"), []);
});

test("the drawing says what is active and retired, and hangs a copy of the file on the file", () => {
  const all = allVersions([version(3, 1, { retired: true }), version(2, 1), version(1, 0, { bootstrapped_from_static: true })], [], "def_file");
  const nodes = drawn(all, "def_2");
  assert.deepEqual(nodes.map((node) => [node.title, node.parent, node.tone, node.dashed]), [
    ["file", null, "info", false],
    ["version 1", "def_file", undefined, true],
    ["version 2 · active", "def_1", "good", false],
    ["version 3 · retired", "def_1", "bad", false],
  ]);
  assert.equal(nodes[2].href, "/def_2");
  assert.deepEqual(versionState(version(3, 1, { retired: true }), "def_3"), { word: "active", tone: "good" });
});

test("a long history draws the newest versions with what leads to them", () => {
  const many = Array.from({ length: 1_000 }, (_, at) => version(1_000 - at, at < 900 ? 100 : 0));
  const nodes = drawn(allVersions(many, [], "def_file"), "def_1000");
  assert.ok(nodes.length <= DRAWN_MAX + 2);
  assert.ok(nodes.some((node) => node.id === "def_100"));
  assert.ok(nodes.some((node) => node.id === "def_1000") && nodes.some((node) => node.id === "def_file"));
});

test("a team is a tree of its states, and says the ways back", () => {
  const state = (name, handler) => ({ state: name, handler });
  const team = {
    entry: "write",
    states: [state("alone", { kind: "terminal" }), state("write", { kind: "agent", agent: "a" }), state("review", { kind: "parallel", agents: ["b", "c"] }), state("done", { kind: "terminal" })],
    transitions: [{ from: "write", to: "review", on: "success" }, { from: "review", to: "write", on: "pushback:long" }, { from: "review", to: "done", on: "conditional:x" }, { from: "done", to: "nowhere", on: "success" }],
  };
  assert.deepEqual(teamNodes(team).map((node) => [node.id, node.parent, node.sub, node.dashed]), [
    ["write", null, "a", false],
    ["review", "write", "b, c · back to write", false],
    ["done", "review", "terminal", true],
    ["alone", null, "terminal", false],
  ]);
  assert.deepEqual(teamNodes({ entry: "x", states: null, transitions: null }), []);
});

test("a prompt that is there twice is edited once", () => {
  assert.deepEqual(editable({ system_prompt: "a", system_prompt_base: "a", model: "m" }), { system_prompt: "a", model: "m" });
  const other = { system_prompt: "a with a skill", system_prompt_base: "a" };
  assert.deepEqual(editable(other), other);
});
