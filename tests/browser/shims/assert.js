// Stands for node:assert/strict in a browser: what the tests of the page's modules use of it, with the same meaning.
class AssertionError extends Error {}

function fail(message, text) {
  if (message instanceof Error) throw message;
  throw new AssertionError(message ? `${message}: ${text}` : text);
}

function show(value) {
  if (typeof value === "string") return JSON.stringify(value);
  try {
    return JSON.stringify(value, (_, one) => (one === undefined ? "[undefined]" : typeof one === "bigint" ? `${one}n` : one instanceof Map ? [...one] : one instanceof Set ? [...one] : one), 1) ?? String(value);
  } catch {
    return String(value);
  }
}

/** Deep and strict: prototypes, types and own properties, an absent property is not an undefined one. */
function isDeepEqual(a, b) {
  if (Object.is(a, b)) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  if (a instanceof Date) return Object.is(a.getTime(), b.getTime());
  if (a instanceof RegExp) return String(a) === String(b);
  if (a instanceof Error && (a.message !== b.message || a.name !== b.name)) return false;
  if (a instanceof Map) return a.size === b.size && [...a].every(([key, value]) => b.has(key) && isDeepEqual(value, b.get(key)));
  if (a instanceof Set) return a.size === b.size && [...a].every((one) => b.has(one) || [...b].some((other) => isDeepEqual(one, other)));
  const names = Reflect.ownKeys(a).filter((name) => Object.prototype.propertyIsEnumerable.call(a, name));
  const others = Reflect.ownKeys(b).filter((name) => Object.prototype.propertyIsEnumerable.call(b, name));
  if (Array.isArray(a) && a.length !== b.length) return false;
  return names.length === others.length && names.every((name) => Object.hasOwn(b, name) && isDeepEqual(a[name], b[name]));
}

function fits(error, expected) {
  if (expected === undefined) return true;
  if (expected instanceof RegExp) return expected.test(String(error));
  if (typeof expected === "function") return expected.prototype !== undefined && error instanceof expected ? true : expected.prototype instanceof Error || expected === Error ? false : expected(error) === true;
  return Object.entries(expected).every(([name, value]) => (value instanceof RegExp ? value.test(error[name]) : isDeepEqual(error[name], value)));
}

export function ok(value, message) {
  if (!value) fail(message, `expected something true, got ${show(value)}`);
}

const assert = (value, message) => ok(value, message);

export default Object.assign(assert, {
  ok,
  equal(actual, expected, message) {
    if (!Object.is(actual, expected)) fail(message, `expected ${show(expected)}, got ${show(actual)}`);
  },
  notEqual(actual, expected, message) {
    if (Object.is(actual, expected)) fail(message, `expected anything but ${show(expected)}`);
  },
  deepEqual(actual, expected, message) {
    if (!isDeepEqual(actual, expected)) fail(message, `expected ${show(expected)}\ngot ${show(actual)}`);
  },
  notDeepEqual(actual, expected, message) {
    if (isDeepEqual(actual, expected)) fail(message, `expected anything but ${show(expected)}`);
  },
  match(text, pattern, message) {
    if (typeof text !== "string" || !pattern.test(text)) fail(message, `expected a text that matches ${pattern}, got ${show(text)}`);
  },
  doesNotMatch(text, pattern, message) {
    if (typeof text !== "string" || pattern.test(text)) fail(message, `expected a text that does not match ${pattern}, got ${show(text)}`);
  },
  throws(body, expected, message) {
    let error;
    try {
      body();
    } catch (caught) {
      error = caught;
      if (fits(caught, typeof expected === "string" ? undefined : expected)) return;
    }
    fail(message, error === undefined ? "expected an error, got none" : `expected an error that fits ${expected}, got ${error}`);
  },
  async rejects(promise, expected, message) {
    let error;
    try {
      await (typeof promise === "function" ? promise() : promise);
    } catch (caught) {
      error = caught;
      if (fits(caught, typeof expected === "string" ? undefined : expected)) return;
    }
    fail(message, error === undefined ? "expected a rejection, got none" : `expected an error that fits ${expected}, got ${error}`);
  },
  fail(message) {
    fail(message, "failed");
  },
});
