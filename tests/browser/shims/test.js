// Stands for node:test where the modules of the page are tested in a browser: collects tests, and `run` runs them in their order.
const tests = [];
let prefix = "";

/** @param {string} name @param {any} [options] @param {() => any} [body] */
export function test(name, options, body) {
  tests.push({ name: prefix + name, body: typeof options === "function" ? options : body });
}

/** @param {string} name @param {() => void} body */
export function describe(name, body) {
  const before = prefix;
  prefix += `${name}: `;
  body();
  prefix = before;
}

export const it = test;
export default test;

/** Runs what was collected. @returns {Promise<{name: string, failure: string}[]>} failure: empty if it passed */
export async function run() {
  const results = [];
  for (const { name, body } of tests) {
    let failure = "";
    try {
      await body();
    } catch (error) {
      failure = String(error?.stack ?? error);
    }
    results.push({ name, failure });
  }
  return results;
}
