// The difference of two texts by lines, with unchanged parts folded. Myers' algorithm, bounded.
import { html, useState } from "../ui.js";

const EDITS_MAX = 2_000;
const AROUND = 3;

/** @param {string} before @param {string} after @returns {{kind: "same" | "added" | "removed", text: string}[] | null} null when they differ in more than 2,000 lines */
export function difference(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  const most = Math.min(a.length + b.length, EDITS_MAX);
  const trace = [];
  let reached = new Map([[1, 0]]);
  for (let edits = 0; edits <= most; edits += 1) {
    const next = new Map(reached);
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const down = diagonal === -edits || (diagonal !== edits && (next.get(diagonal - 1) ?? -1) < (next.get(diagonal + 1) ?? -1));
      let x = down ? (next.get(diagonal + 1) ?? 0) : (next.get(diagonal - 1) ?? 0) + 1;
      let y = x - diagonal;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x += 1;
        y += 1;
      }
      next.set(diagonal, x);
      if (x >= a.length && y >= b.length) {
        trace.push(next);
        return walkBack(a, b, trace);
      }
    }
    trace.push(next);
    reached = next;
  }
  return null;
}

function walkBack(a, b, trace) {
  const lines = [];
  let x = a.length;
  let y = b.length;
  for (let edits = trace.length - 1; edits > 0; edits -= 1) {
    const before = trace[edits - 1];
    const diagonal = x - y;
    const down = diagonal === -edits || (diagonal !== edits && (before.get(diagonal - 1) ?? -1) < (before.get(diagonal + 1) ?? -1));
    const from = down ? diagonal + 1 : diagonal - 1;
    const startX = before.get(from) ?? 0;
    const startY = startX - from;
    while (x > startX && y > startY && x > 0 && y > 0 && a[x - 1] === b[y - 1]) {
      lines.push({ kind: "same", text: a[x - 1] });
      x -= 1;
      y -= 1;
    }
    if (down) {
      lines.push({ kind: "added", text: b[y - 1] });
      y -= 1;
    } else {
      lines.push({ kind: "removed", text: a[x - 1] });
      x -= 1;
    }
  }
  while (x > 0) {
    lines.push({ kind: "same", text: a[x - 1] });
    x -= 1;
  }
  return lines.reverse();
}

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
