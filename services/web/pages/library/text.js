// Definitions as text that a person edits and compares: YAML, in which JSON may be written too. The library is loaded when it is needed.

const VALUES_MAX = 100_000;
let yaml = /** @type {any} */ (null);

export async function loadYaml() {
  yaml ??= (await import("../../vendor/yaml.js")).default;
  return yaml;
}

/** Whether toYaml and parseText can be called. */
export const isYamlLoaded = () => yaml !== null;

/** YAML of a value, long texts as blocks. @param {any} value @param {{sorted?: boolean}} [options] sorted: keys by name, so that equal values have equal texts */
export function toYaml(value, { sorted = false } = {}) {
  return yaml.dump(value, { sortKeys: sorted, lineWidth: -1, noRefs: true });
}

/**
 * The object that a text says. Dates, yes and no stay texts, as in JSON.
 * @param {string} text YAML or JSON @returns {Record<string, any>}
 */
export function parseText(text) {
  let value;
  try {
    value = yaml.load(text, { schema: yaml.JSON_SCHEMA });
  } catch (error) {
    const mark = /** @type {any} */ (error).mark;
    throw new Error(`Line ${(mark?.line ?? 0) + 1}: ${/** @type {any} */ (error).reason ?? error}.`);
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
    if (JSON.stringify(value) !== JSON.stringify(before[key])) overlay[key] = value;
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
