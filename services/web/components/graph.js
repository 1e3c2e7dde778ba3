// A tree or forest as a drawing from left to right: runs with their children and forks, versions of a definition.
import { html } from "../ui.js";

const WIDTH = 210;
const HEIGHT = 46;
const GAP_X = 46;
const GAP_Y = 14;

/**
 * @param {{nodes: {id: string, parent: string | null, title: string, sub?: string, tone?: string, href?: string, dashed?: boolean}[], current?: string, label: string}} properties
 *   parent: id of another node, or null for a root. dashed: the edge to it is of another kind (a fork). tone: colour of the bar at the left.
 */
export function Graph({ nodes, current, label }) {
  const places = layOut(nodes);
  const width = Math.max(...[...places.values()].map((place) => place.x)) + WIDTH + 24;
  const height = Math.max(...[...places.values()].map((place) => place.y)) + HEIGHT + 24;
  return html`<div class="graph" tabindex="0" role="group" aria-label=${label}>
    <svg width=${width} height=${height} role="presentation">
      ${nodes.map((node) => {
        const to = places.get(node.id);
        const from = node.parent === null ? null : places.get(node.parent);
        if (!to || !from) return null;
        const x1 = from.x + WIDTH;
        const y1 = from.y + HEIGHT / 2;
        const y2 = to.y + HEIGHT / 2;
        const middle = (x1 + to.x) / 2;
        return html`<path key=${`e${node.id}`} class=${node.dashed ? "edge dashed" : "edge"} d=${`M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${to.x} ${y2}`} />`;
      })}
      ${nodes.map((node) => {
        const place = places.get(node.id);
        if (!place) return null;
        const inside = html`<rect class="node" width=${WIDTH} height=${HEIGHT} rx="7" /><rect x="0" y="8" width="4" height=${HEIGHT - 16} rx="2" fill=${`var(--${node.tone ?? "line-strong"})`} />
          <text x="14" y=${node.sub ? 19 : 28}>${cut(node.title, 27)}</text>${node.sub ? html`<text class="sub" x="14" y="36">${cut(node.sub, 32)}</text>` : null}<title>${node.title} ${node.sub ?? ""}</title>`;
        return html`<g key=${node.id} class=${node.id === current ? "current" : ""} transform=${`translate(${place.x} ${place.y})`}>${node.href ? html`<a href=${node.href} aria-label=${`${node.title} ${node.sub ?? ""}`} aria-current=${node.id === current ? "true" : undefined}>${inside}</a>` : inside}</g>`;
      })}
    </svg>
  </div>`;
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Depth gives x; leaves take the next free y and parents the middle of theirs. No recursion: trees of runs may be deep. */
function layOut(nodes) {
  const known = new Set(nodes.map((node) => node.id));
  const children = new Map();
  const roots = [];
  for (const node of nodes) {
    if (node.parent === null || !known.has(node.parent)) roots.push(node);
    else children.set(node.parent, [...(children.get(node.parent) ?? []), node]);
  }
  const places = new Map();
  let y = 12;
  const stack = roots.reverse().map((node) => ({ node, depth: 0, isDone: false }));
  while (stack.length) {
    const step = /** @type {any} */ (stack.pop());
    const below = children.get(step.node.id) ?? [];
    const x = 12 + step.depth * (WIDTH + GAP_X);
    if (!below.length) {
      places.set(step.node.id, { x, y });
      y += HEIGHT + GAP_Y;
    } else if (step.isDone) {
      const first = places.get(below[0].id);
      const last = places.get(below[below.length - 1].id);
      places.set(step.node.id, { x, y: (first.y + last.y) / 2 });
    } else {
      stack.push({ ...step, isDone: true });
      for (const child of [...below].reverse()) stack.push({ node: child, depth: step.depth + 1, isDone: false });
    }
  }
  return places;
}
