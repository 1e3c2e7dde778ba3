// What the OpenAPI document says about families: their operations, and the fields of their commands. No part of the page is needed here.
import { exactInteger, parseJson, printJson } from "../../exact_json.js";

/**
 * @typedef {{name: string, title: string, kind: "text" | "choice" | "whole" | "number" | "flag" | "list" | "json", isRequired: boolean, hint: string, options: string[], initial: any}} FormField
 * @typedef {{verb: string, path: string, summary: string, scope: string, fields: FormField[]}} Command
 * @typedef {{verb: string, path: string, summary: string, parameters: string[], isRequired: boolean}} Question
 * @typedef {{name: string, summary: string, scope: string, commands: Command[], questions: Question[]}} Family
 */

/** Parameters that every question has; the page gives them itself. */
const GIVEN = new Set(["id", "tenant", "position"]);

/**
 * The families of a server, by name: those whose list has the operation list_<family>_aggregates at /v1/_<family>.
 * @param {any} document @returns {Family[]}
 */
export function familiesOf(document) {
  /** @type {Map<string, Family>} */
  const families = new Map();
  for (const [path, methods] of Object.entries(document.paths ?? {})) {
    const [, name] = path.match(/^\/v1\/_([a-z]+)$/) ?? [];
    if (!name || methods.get?.operationId !== `list_${name}_aggregates`) continue;
    const tag = (document.tags ?? []).find((one) => one.name === methods.get.tags?.[0]);
    families.set(name, { name, summary: tag?.description ?? "", scope: scopeOf(methods.get), commands: [], questions: [] });
  }
  for (const [path, methods] of Object.entries(document.paths ?? {})) {
    const [, name, verb] = path.match(/^\/v1\/_([a-z]+)\/([a-z_]+)$/) ?? [];
    const family = families.get(name);
    if (!family) continue;
    if (methods.post?.operationId === `${verb}_${name}`) {
      family.commands.push({ verb, path, summary: methods.post.summary ?? "", scope: scopeOf(methods.post), fields: fieldsOf(bodySchema(methods.post), document) });
    }
    if (methods.get?.operationId === `get_${name}_${verb}`) {
      const parameters = (methods.get.parameters ?? []).filter((one) => one.in === "query" && !GIVEN.has(one.name));
      family.questions.push({ verb, path, summary: methods.get.summary ?? "", parameters: parameters.map((one) => one.name), isRequired: parameters.some((one) => one.required) });
    }
  }
  return [...families.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** "Access: scope substrate:tenant." -> "substrate:tenant"; empty when it says another thing. */
const scopeOf = (operation) => (operation.description ?? "").match(/\bscope ([a-z]+:[a-z]+)/)?.[1] ?? "";

const bodySchema = (operation) => operation.requestBody?.content?.["application/json"]?.schema ?? {};

const MAX_REFERENCES = 10;

/** The schema that a reference leads to. @param {any} schema @param {any} document */
export function resolved(schema, document) {
  let one = schema;
  for (let step = 0; one?.$ref && step < MAX_REFERENCES; step += 1) {
    one = one.$ref.replace(/^#\//, "").split("/").reduce((value, key) => value?.[key.replace(/~1/g, "/").replace(/~0/g, "~")], document);
  }
  return one ?? {};
}

/** The fields of a form for an object. @param {any} schema @param {any} document @returns {FormField[]} */
export function fieldsOf(schema, document) {
  const object = resolved(schema, document);
  const required = new Set(object.required ?? []);
  return Object.entries(object.properties ?? {}).map(([name, given]) => {
    const whole = resolved(given, document);
    const parts = (whole.anyOf ?? [whole]).map((part) => resolved(part, document));
    const real = parts.filter((part) => part.type !== "null");
    const one = real.length === 1 ? real[0] : {};
    const options = (one.enum ?? []).filter((value) => value !== null).map(String);
    return { name, title: name.replaceAll("_", " "), kind: options.length ? "choice" : kindOf(one, document), isRequired: required.has(name), hint: whole.description ?? "", options, initial: whole.default };
  });
}

function kindOf(schema, document) {
  const types = [schema.type].flat().filter((type) => type && type !== "null");
  if (types.length !== 1) return "json";
  if (types[0] === "array") return resolved(schema.items ?? {}, document).type === "string" ? "list" : "json";
  return { string: "text", integer: "whole", number: "number", boolean: "flag" }[types[0]] ?? "json";
}

/** What a form shows at first. @param {FormField[]} fields @returns {Record<string, any>} */
export function initialValues(fields) {
  return Object.fromEntries(fields.map((field) => [field.name, shownValue(field)]));
}

function shownValue({ kind, initial }) {
  if (kind === "flag") return initial === true;
  if (initial === undefined || initial === null) return "";
  if (kind === "list") return initial.join("\n");
  return kind === "json" ? printJson(initial, null, 2) : String(initial);
}

/**
 * The body that a form gives. Fields that were left as they were are left out, unless they are required.
 * @param {FormField[]} fields @param {Record<string, any>} values
 * @returns {{body: Record<string, any>, problems: Record<string, string>}} problems: by field, in words for the person
 */
export function bodyOf(fields, values) {
  /** @type {Record<string, any>} */
  const body = {};
  /** @type {Record<string, string>} */
  const problems = {};
  for (const field of fields) {
    const value = values[field.name];
    if (value === shownValue(field) && !field.isRequired) continue;
    if (value === "" && !field.isRequired) continue;
    const { result, problem } = parsed(field, value);
    if (problem) problems[field.name] = problem;
    else body[field.name] = result;
  }
  return { body, problems };
}

function parsed(field, value) {
  if (field.kind === "flag") return { result: value === true };
  const text = String(value ?? "");
  if (field.kind === "text" || field.kind === "choice") return field.isRequired && !text ? { problem: "This is needed." } : { result: text };
  if (field.kind === "list") return { result: text.split("\n").map((line) => line.trim()).filter(Boolean) };
  if (!text.trim()) return { problem: "This is needed." };
  if (field.kind === "whole") {
    if (!/^[+-]?\d+$/.test(text.trim())) return { problem: "Expected a whole number." };
    return { result: exactInteger(text.trim().replace(/^\+/, "")) };
  }
  if (field.kind === "number") return Number.isFinite(Number(text)) ? { result: Number(text) } : { problem: "Expected a number." };
  try {
    return { result: parseJson(text) };
  } catch (error) {
    return { problem: `Expected JSON: ${/** @type {Error} */ (error).message}.` };
  }
}
