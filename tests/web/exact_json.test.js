import assert from "node:assert/strict";
import { test } from "node:test";
import { exactInteger, parseJson, printJson } from "../../services/web/exact_json.js";

const TEXTS = [
  "9007199254740993",
  "-9223372036854775808",
  '{"a":[1,9007199254740993,{"b":18446744073709551615}],"c":"9007199254740993","d":"say \\"9007199254740993\\", then 12345678901234567890"}',
  '{"9007199254740993":1.5,"e":1e3,"id":"0123456789012345"}',
  '"\\\\"',
];

test("integers of any size come out as they went in, and texts of digits stay texts", () => {
  for (const text of TEXTS) assert.equal(printJson(parseJson(text)), text.replace("1e3", "1000"), text);
  assert.deepEqual(parseJson('{"big": 9007199254740993, "safe": 9007199254740991}'), { big: 9007199254740993n, safe: 9007199254740991 });
  assert.equal(exactInteger("9007199254740991"), 9007199254740991);
});

test("an error names its place in the text that was given, and a circle is still refused", () => {
  assert.throws(() => parseJson('{"a": 9007199254740993,}'), SyntaxError);
  const circle = { big: 1n };
  circle.self = circle;
  assert.throws(() => printJson(circle), TypeError);
});

test("indents and replacers work as those of JSON", () => {
  assert.equal(printJson({ a: 1n }, null, 2), '{\n  "a": 1\n}');
  assert.equal(printJson({ a: 2n ** 64n, b: 1 }, (name, value) => (name === "b" ? undefined : value)), '{"a":18446744073709551616}');
});
