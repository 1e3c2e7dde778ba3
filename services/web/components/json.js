// JSON as a foldable tree. Text of models and tools is shown as text, never as markup; long strings are cut until asked for.
import { html, useState } from "../ui.js";
import { printJson } from "../exact_json.js";
import { CopyButton } from "./controls.js";

const STRING_MAX = 400;
const CHILDREN_MAX = 100;

/** @param {{value: any, open?: number, label?: string}} properties open: levels that are open at first */
export function Json({ value, open = 2, label = "JSON" }) {
  return html`<div class="json" role="group" aria-label=${label}><${CopyButton} text=${safeText(value)} label="Copy as JSON" /><${Value} value=${value} open=${open} /></div>`;
}

/** @param {any} value */
export function safeText(value) {
  try {
    return printJson(value, null, 2) ?? String(value);
  } catch {
    return String(value);
  }
}

/** @param {{value: any, open: number, name?: string | number}} properties */
function Value({ value, open, name }) {
  const [count, setCount] = useState(CHILDREN_MAX);
  const key = name === undefined ? null : html`<span class="key">${name}</span>: `;
  if (value === null || typeof value !== "object") return html`<div class="leaf">${key}<${Scalar} value=${value} /></div>`;
  const entries = Array.isArray(value) ? value.map((one, at) => [at, one]) : Object.entries(value);
  const brackets = Array.isArray(value) ? "[]" : "{}";
  if (!entries.length) return html`<div class="leaf">${key}<span class="dim">${brackets}</span></div>`;
  return html`<details open=${open > 0}>
    <summary>${key}<span class="dim">${Array.isArray(value) ? `[${entries.length}]` : `{${Object.keys(value).slice(0, 4).join(", ")}${entries.length > 4 ? ", …" : ""}}`}</span></summary>
    <div class="inside">
      ${entries.slice(0, count).map(([at, one]) => html`<${Value} key=${at} value=${one} open=${open - 1} name=${at} />`)}
      ${entries.length > count ? html`<button class="link" type="button" onClick=${() => setCount(count + 1_000)}>${entries.length - count} more</button>` : null}
    </div>
  </details>`;
}

function Scalar({ value }) {
  if (typeof value === "string") return html`<${LongText} text=${value} quote />`;
  return html`<span class=${value === null ? "null" : typeof value === "bigint" ? "number" : typeof value}>${String(value)}</span>`;
}

/** A text that shows its beginning until asked for the rest; direction marks inside cannot reorder what is around it. @param {{text: string, max?: number, quote?: boolean}} properties */
export function LongText({ text, max = STRING_MAX, quote = false }) {
  const [limit, setLimit] = useState(max);
  const shown = text.length > limit ? text.slice(0, limit) : text;
  return html`<span class=${quote ? "string" : "text"}><bdi>${quote ? printJson(shown) : shown}</bdi>${text.length > limit
    ? html` <button class="link" type="button" onClick=${() => setLimit(limit * 20)}>${(text.length - limit).toLocaleString()} more characters</button>`
    : null}</span>`;
}
