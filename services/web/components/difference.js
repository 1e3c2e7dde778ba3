// The difference of two texts by lines, with unchanged parts folded.
import { html, useState } from "../ui.js";
import { difference } from "./lines.js";

export { difference };

const AROUND = 3;

/** @param {{before: string, after: string, label?: string}} properties */
export function Difference({ before, after, label = "Difference" }) {
  const [isWhole, setWhole] = useState(false);
  if (before === after) return html`<p class="dim">No difference.</p>`;
  const lines = difference(before, after);
  if (!lines) return html`<p class="note warn">These texts differ in more lines than are compared here; export both to compare them.</p>`;
  const near = lines.map((_, at) => lines.slice(Math.max(0, at - AROUND), at + AROUND + 1).some((line) => line.kind !== "same"));
  const rows = [];
  let skipped = 0;
  lines.forEach((line, at) => {
    if (isWhole || near[at]) {
      if (skipped) rows.push({ kind: "skipped", text: `… ${skipped} equal lines` });
      skipped = 0;
      rows.push(line);
    } else skipped += 1;
  });
  if (skipped) rows.push({ kind: "skipped", text: `… ${skipped} equal lines` });
  const signs = { added: "+ ", removed: "− ", same: "  ", skipped: "" };
  return html`<div class="difference" role="group" aria-label=${label}>
    ${rows.map((row, at) => html`<div class=${row.kind} key=${at}>${signs[row.kind]}<bdi>${row.text}</bdi></div>`)}
    ${isWhole || rows.every((row) => row.kind !== "skipped") ? null : html`<div class="skipped"><button class="link" type="button" onClick=${() => setWhole(true)}>Show every line</button></div>`}
  </div>`;
}
