// Definitions as text that a person edits and compares: YAML, in which JSON may be written too. The library is loaded when it is needed.
import { exactInteger, printJson } from "../../exact_json.js";

const VALUES_MAX = 100_000;
const DECIMAL = /^[+-]?\d+$/;
let yaml = /** @type {any} */ (null);

export async function loadYaml() {
  yaml ??= withExactIntegers(await import("../../vendor/yaml.js"));
  return yaml;
}

/**
 * The library with schemas in which integers keep all their digits: JSON's values are read; what is written is quoted where any reader of YAML
 * would take it for something else.
 * @param {any} library
 */
function withExactIntegers({ dump, loadAll, JSON_SCHEMA, DUMP_SCHEMA, NOT_RESOLVED }) {
  const exact = (schema) => {
    const known = schema.tags.find((tag) => tag.tagName === "tag:yaml.org,2002:int");
    const resolve = (source, isExplicit, name) => {
      const value = known.resolve(source, isExplicit, name);
      return value === NOT_RESOLVED || Number.isSafeInteger(value) || !DECIMAL.test(source) ? value : exactInteger(source.replace("+", ""));
    };
    return schema.withTags({ ...known, resolve, identify: (value) => typeof value === "bigint" || known.identify(value), represent: String });
  };
  return { dump, loadAll, readSchema: exact(JSON_SCHEMA), writtenSchema: exact(DUMP_SCHEMA) };
}

/** Whether toYaml and parseText can be called. */
export const isYamlLoaded = () => yaml !== null;

/** YAML of a value, long texts as blocks. @param {any} value @param {{sorted?: boolean}} [options] sorted: keys by name, so that equal values have equal texts */
export function toYaml(value, { sorted = false } = {}) {
  return yaml.dump(value, { schema: yaml.writtenSchema, sortKeys: sorted, lineWidth: -1, noRefs: true });
}

/**
 * The object that a text says. Dates, yes and no stay texts, as in JSON.
 * @param {string} text YAML or JSON @returns {Record<string, any>}
 */
export function parseText(text) {
  let value;
  try {
    const documents = yaml.loadAll(text, { schema: yaml.readSchema });
    if (documents.length > 1) throw new Error(`expected one document, these are ${documents.length}`);
    value = documents[0];
  } catch (error) {
    const mark = /** @type {any} */ (error).mark;
    throw new Error(`Line ${(mark?.line ?? 0) + 1}: ${/** @type {any} */ (error).reason ?? /** @type {Error} */ (error).message}.`);
  }
  if (value === null || value === undefined) return {};
  if (typeof value !== "object" || Array.isArray(value)) throw new Error("Expected keys and values, such as “model: …”; this is " + (Array.isArray(value) ? "a list." : "a single value."));
  if (countValues(value) > VALUES_MAX) throw new Error(`This has more than ${VALUES_MAX.toLocaleString("en")} values: aliases may repeat too much.`);
  return value;
}

/** Number of values in a value, counted no further than the limit: aliases can make a short text endless. */
function countValues(value) {
  let count = 0;
  const waiting = [value];
  while (waiting.length && count <= VALUES_MAX) {
    const one = waiting.pop();
    count += 1;
    if (one && typeof one === "object") for (const inner of Object.values(one)) waiting.push(inner);
  }
  return count;
}

/**
 * A definition as a person edits it: without the prompt before the bodies of skills when it is the prompt itself, because the server
 * derives it again.
 * @param {Record<string, any>} definition
 */
export function editable(definition) {
  const { system_prompt_base: base, ...rest } = definition;
  return base === undefined || base === definition.system_prompt ? rest : definition;
}

/**
 * The overlay that makes `after` of `before`: keys that differ. A key that was taken out is given empty, because a fork keeps what
 * its overlay leaves out; unless a key that excludes it is given.
 * @param {Record<string, any>} before @param {Record<string, any>} after @param {string[][]} [alternatives]
 */
export function overlayOf(before, after, alternatives = []) {
  /** @type {Record<string, any>} */
  const overlay = {};
  for (const [key, value] of Object.entries(after)) {
    if (printJson(value) !== printJson(before[key])) overlay[key] = value;
  }
  const given = alternatives.filter((group) => group.some((key) => key in overlay));
  const replaced = given.length ? alternatives.filter((group) => !given.includes(group)).flat() : [];
  for (const key of Object.keys(before)) {
    if (!(key in after) && !replaced.includes(key)) overlay[key] = emptied(before[key]);
  }
  return overlay;
}

function emptied(value) {
  if (Array.isArray(value)) return [];
  if (typeof value === "number") return 0;
  if (typeof value === "boolean") return false;
  return typeof value === "string" ? "" : {};
}
