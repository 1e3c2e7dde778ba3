// JSON whose integers keep all their digits: those that a JavaScript number cannot hold are BigInt. No document: tested without a browser.
// All JSON of the page is read and written here (tests/services/web/test_page.py); a value that came in goes out as it was.

/** Outside of strings, more digits than every safe integer has. Text without them needs no second look. */
const MANY_DIGITS = /\d{16}/;
const STRING_OR_NUMBER = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const INTEGER = /^-?\d+$/;

/** An integer of a text: a number if it is one exactly, else a BigInt. @param {string} digits @returns {number | bigint} */
export function exactInteger(digits) {
  const number = Number(digits);
  return Number.isSafeInteger(number) ? number : BigInt(digits);
}

/** JSON.parse. @param {string} text @param {(key: string, value: any) => any} [revive] */
export function parseJson(text, revive) {
  if (!MANY_DIGITS.test(text)) return JSON.parse(text, revive);
  JSON.parse(text); // An error names its place in the text that was given.
  const mark = newMark();
  const marked = text.replace(STRING_OR_NUMBER, (one) => (INTEGER.test(one) && typeof exactInteger(one) === "bigint" ? `"${mark}${one}"` : one));
  return JSON.parse(marked, function (key, value) {
    const exact = typeof value === "string" && value.startsWith(mark) ? BigInt(value.slice(mark.length)) : value;
    return revive ? revive.call(this, key, exact) : exact;
  });
}

/** JSON.stringify. @param {any} value @param {((key: string, value: any) => any) | null} [replace] @param {number} [indent] @returns {string} */
export function printJson(value, replace, indent) {
  try {
    return JSON.stringify(value, replace ?? undefined, indent);
  } catch (error) {
    const mark = newMark();
    let isExact = false;
    const text = JSON.stringify(
      value,
      function (key, one) {
        const kept = replace ? replace.call(this, key, one) : one;
        if (typeof kept !== "bigint") return kept;
        isExact = true;
        return `${mark}${kept}`;
      },
      indent,
    );
    if (!isExact) throw error;
    return text.replace(new RegExp(`"${mark}(-?\\d+)"`, "g"), "$1");
  }
}

/** A beginning that no string of the text has, whoever wrote it. */
const newMark = () => `integer-${Array.from(crypto.getRandomValues(new Uint32Array(4)), (part) => part.toString(16)).join("")}:`;
