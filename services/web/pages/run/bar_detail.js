// What a bar of the timeline says: on hover, when it is chosen, and the sum of the critical path.
import { html } from "../../ui.js";
import { link } from "../../router.js";
import { Button } from "../../components/controls.js";
import { formatDuration, formatMoney, formatShort, formatTime } from "../../components/time.js";
import { formatTick } from "./bars.js";
import { viewLink } from "./links.js";

const KINDS = { turn: "Turn", model: "Model call", compaction: "Compaction", tool: "Tool call", child: "Child run", question: "Question", outcome: "Decision about an outcome", channel: "Wait for a channel", input: "Wait for input", pause: "Pause", quarantine: "Quarantine" };
const PARTS = { model: ["models", "c2"], compaction: ["compaction", "c4"], tool: ["tools", "c1"], child: ["children", "c6"], question: ["questions", "c3"], outcome: ["decisions", "c3"], channel: ["channels", "c7"], input: ["waiting for input", "c8"], pause: ["paused", "warn"], quarantine: ["in quarantine", "bad"] };

const tokensOf = (tokens) => `${formatShort(tokens.input)} in${tokens.cacheRead ? ` + ${formatShort(tokens.cacheRead)} cached` : ""}${tokens.cacheWrite ? ` + ${formatShort(tokens.cacheWrite)} written to the cache` : ""}, ${formatShort(tokens.output)} out`;

function factsOf(bar, start, now) {
  const times = bar.real ?? bar;
  const ms = (times.end ?? now) - times.start;
  return [
    ["Started", `${formatTime(times.start)}, ${formatTick(times.start - start, 1)} after the run began`],
    ["Took", `${formatDuration(ms)}${bar.end === null ? " so far" : ""}`],
    ...(bar.leadMs > 20 ? [["Before it began", `${formatDuration(bar.leadMs)}: a delayed retry, admission or limits`]] : []),
    ...(bar.tokens ? [["Tokens", tokensOf(bar.tokens)]] : []),
    ...(bar.cost ? [["Cost", formatMoney(bar.cost, bar.currency)]] : []),
    ...(bar.note ? [["Note", html`<bdi>${bar.note}</bdi>`]] : []),
  ];
}

/** A card beside the pointer, or below what has the focus. @param {{of: any, start: number, now: number}} properties */
export function BarTip({ of, start, now }) {
  const place = of.element?.getBoundingClientRect();
  const x = place ? place.left : of.x;
  const y = place ? place.bottom : of.y + 10;
  const toLeft = x > innerWidth - 320;
  const toTop = y > innerHeight - 220;
  const style = { left: `${Math.max(8, toLeft ? x - 300 : x + 8)}px`, ...(toTop ? { bottom: `${innerHeight - (place ? place.top : of.y) + 8}px` } : { top: `${y + 4}px` }) };
  if (of.marks) {
    return html`<div class="tip" style=${style} role="presentation">${of.marks.slice(0, 8).map((mark) => html`<p key=${mark.seq}><b style=${{ color: `var(--${mark.tone})` }}>${formatTick((mark.real ?? mark.at) - start, 1)}</b> <bdi>${mark.title}</bdi></p>`)}${of.marks.length > 8 ? html`<p class="dim">${of.marks.length - 8} more</p>` : null}</div>`;
  }
  if (of.count > 1) return html`<div class="tip" style=${style} role="presentation"><b>${of.count} bars</b><p class="dim">Too close to be told apart; press to zoom in.</p></div>`;
  return html`<div class="tip" style=${style} role="presentation">
    <b><bdi>${of.bar.title}</bdi></b> <span class="dim">${KINDS[of.bar.kind]}${of.bar.turn && of.bar.kind !== "turn" ? ` of turn ${of.bar.turn}` : ""}</span>
    <dl>${factsOf(of.bar, start, now).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd key=${`${name}.`}>${value}</dd>`)}</dl>
  </div>`;
}

/** The chosen bar with its records. @param {{bar: any, start: number, now: number, runId: string, typeOf: (seq: number) => string, onLook: (seq: number) => void, onClose: () => void}} properties */
export function BarDetail({ bar, start, now, runId, typeOf, onLook, onClose }) {
  const shown = bar.seqs.slice(0, 60);
  return html`<section class="card timeline-detail" aria-label="The chosen bar">
    <header><h2><bdi>${bar.title}</bdi> <small class="dim">${KINDS[bar.kind]}${bar.turn && bar.kind !== "turn" ? ` of turn ${bar.turn}` : ""}</small></h2>
      ${bar.child ? html`<${Button} small icon="external-link" href=${link(`/runs/${encodeURIComponent(bar.child)}/timeline`)}>Open the child<//>` : null}
      ${bar.turn ? html`<${Button} small icon="eye" href=${viewLink(runId, "context", { turn: bar.turn })}>What the model saw<//>` : null}
      <${Button} small icon="rewind" title="Every view shows the run as it was when this ended" onClick=${() => onLook(bar.seqs[bar.seqs.length - 1])}>The run at its end<//>
      <${Button} kind="quiet" small icon="x" label="Close" onClick=${onClose} /></header>
    <div class="inside">
      <dl class="facts">${factsOf(bar, start, now).map(([name, value]) => html`<dt key=${name}>${name}</dt><dd key=${`${name}.`}>${value}</dd>`)}
        <dt>Records</dt><dd class="seqs">${shown.map((seq) => html`<a key=${seq} href=${viewLink(runId, "events", { seq })}>${seq} ${typeOf(seq)}</a>`)}${bar.seqs.length > shown.length ? html`<span class="dim">and ${bar.seqs.length - shown.length} more</span>` : null}</dd>
      </dl>
    </div>
  </section>`;
}

/** What the run's duration is made of, along its critical path. @param {{path: any, total: number}} properties */
export function PathSummary({ path, total }) {
  const parts = Object.entries(path.parts).filter(([, ms]) => ms > 0).sort((a, b) => b[1] - a[1]);
  const share = (ms) => `${Math.max(0.5, (ms / Math.max(1, total)) * 100)}%`;
  return html`<div class="path-summary">
    <p><b class="number">${formatDuration(total)}</b> <span class="dim">in all, by what the run waited for</span></p>
    <div class="path-bar" aria-hidden="true">${parts.map(([kind, ms]) => html`<i key=${kind} style=${{ width: share(ms), background: `var(--${PARTS[kind]?.[1] ?? "c8"})` }}></i>`)}</div>
    <ul>${parts.map(([kind, ms]) => html`<li key=${kind}><i style=${{ background: `var(--${PARTS[kind]?.[1] ?? "c8"})` }}></i>${PARTS[kind]?.[0] ?? kind} <b class="number">${formatDuration(ms)}</b> <span class="dim number">${Math.round((ms / Math.max(1, total)) * 100)} %</span></li>`)}
      ${path.betweenMs >= 1 ? html`<li><i></i>between <b class="number">${formatDuration(path.betweenMs)}</b></li>` : null}</ul>
  </div>`;
}
