// Pages that are made from the declaration of a family: what the OpenAPI document gives, and what a form sends.
import assert from "node:assert/strict";
import test from "node:test";
import { bodyOf, familiesOf, fieldsOf, initialValues } from "../../services/web/pages/entities/schema.js";

const access = { description: "Access: scope substrate:tenant." };
const body = (name) => ({ content: { "application/json": { schema: { $ref: `#/components/schemas/${name}` } } } });
const DOCUMENT = {
  tags: [{ name: "Counter", description: "A number that is counted." }],
  paths: {
    "/v1/_counter": { get: { operationId: "list_counter_aggregates", tags: ["Counter"], ...access } },
    "/v1/_counter/show": { get: { operationId: "show_counter_aggregate", parameters: [], ...access } },
    "/v1/_counter/add": { post: { operationId: "add_counter", summary: "Add.", requestBody: body("CounterAddBody"), ...access } },
    "/v1/_counter/history": { get: { operationId: "get_counter_history", summary: "What happened.", parameters: [{ name: "id", in: "query", required: true }, { name: "last", in: "query" }, { name: "tenant", in: "query" }, { name: "position", in: "query" }, { name: "X-Position", in: "header" }] } },
    "/v1/_agentdef": { post: { operationId: "change_agent_definition" } },
    "/v1/_volumes": { get: { operationId: "list_volumes" } },
    "/v1/runs": { get: { operationId: "list_runs" } },
  },
  components: {
    schemas: {
      CounterAddBody: {
        type: "object",
        properties: {
          counter: { type: "string", description: "Its name." },
          amount: { type: "integer", default: 1 },
          exact: { type: "number" },
          quietly: { type: "boolean", default: false },
          labels: { type: "array", items: { type: "string" }, default: [] },
          note: { anyOf: [{ type: "null" }, { type: "string" }] },
          mode: { type: "string", enum: ["fast", "slow"] },
          extra: { type: "object", additionalProperties: { type: "string" } },
          when: { $ref: "#/components/schemas/Moment" },
        },
        required: ["counter", "exact"],
      },
      Moment: { type: "object", properties: { at: { type: "integer" } } },
    },
  },
};
const [counter] = familiesOf(DOCUMENT);
const { fields } = counter.commands[0];
const send = (changes) => bodyOf(fields, { ...initialValues(fields), ...changes });

test("a family has its commands and questions, and routes of other things are none", () => {
  assert.deepEqual(familiesOf(DOCUMENT).map((family) => family.name), ["counter"]);
  assert.equal(counter.summary, "A number that is counted.");
  assert.equal(counter.scope, "substrate:tenant");
  assert.deepEqual(counter.commands.map((one) => [one.verb, one.path, one.scope]), [["add", "/v1/_counter/add", "substrate:tenant"]]);
  assert.deepEqual(counter.questions, [{ verb: "history", path: "/v1/_counter/history", summary: "What happened.", parameters: ["last"], isRequired: false }]);
});

test("fields have the control of their type", () => {
  assert.deepEqual(fields.map((field) => [field.name, field.kind]), [
    ["counter", "text"], ["amount", "whole"], ["exact", "number"], ["quietly", "flag"], ["labels", "list"],
    ["note", "text"], ["mode", "choice"], ["extra", "json"], ["when", "json"],
  ]);
  assert.deepEqual(fields.filter((field) => field.isRequired).map((field) => field.name), ["counter", "exact"]);
});

test("what was left as it was is left out, and required fields never are", () => {
  assert.deepEqual(send({ counter: "c", exact: "1.5" }), { body: { counter: "c", exact: 1.5 }, problems: {} });
});

test("values become those of their types", () => {
  const values = { counter: "c", exact: "-2", amount: "7", quietly: true, labels: "a\n\n b ", note: "n", mode: "slow", extra: '{"k": "v"}', when: '{"at": 1}' };
  assert.deepEqual(send(values).body, { counter: "c", exact: -2, amount: 7, quietly: true, labels: ["a", "b"], note: "n", mode: "slow", extra: { k: "v" }, when: { at: 1 } });
});

test("a wrong value names its field", () => {
  const { problems } = send({ counter: "", exact: "much", amount: "1.5", extra: "{" });
  assert.deepEqual(Object.keys(problems), ["counter", "amount", "exact", "extra"]);
  assert.match(problems.amount, /whole number/);
  assert.match(problems.extra, /^Expected JSON: /);
  assert.equal(send({ counter: "c", exact: "1", amount: "+9007199254740993" }).body.amount, 9007199254740993n);
});

test("a schema that leads round in circles has no fields", () => {
  const circle = { components: { schemas: { A: { $ref: "#/components/schemas/B" }, B: { $ref: "#/components/schemas/A" } } } };
  assert.deepEqual(fieldsOf({ $ref: "#/components/schemas/A" }, circle), []);
  assert.deepEqual(familiesOf({}), []);
});
