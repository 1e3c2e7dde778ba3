// The difference of two texts by lines: Myers' algorithm, bounded. Pure.

const EDITS_MAX = 2_000;

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
  const lines = /** @type {{kind: "same" | "added" | "removed", text: string}[]} */ ([]);
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
