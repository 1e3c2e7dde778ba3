// What the run used: tokens and cost of each turn and each model, limits that it met, and what its children used.
import { html, useMemo } from "../../ui.js";
import { runs } from "../../api.js";
import { Chip } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable, Table } from "../../components/table.js";
import { formatCount, formatMoney, formatShort } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { viewLink } from "./links.js";
import { descendantsOf, sumsOf } from "./tree_model.js";
import { bucketed, usageOf } from "./usage_model.js";

const BARS_MAX = 160;
const HEIGHT = 150;
const ROW = 32;
const PARTS = [["cacheRead", "From the cache", "c6"], ["cacheWrite", "Into the cache", "c4"], ["input", "Input", "c2"], ["output", "Output", "c3"]];
const right = /** @type {"right"} */ ("right");

/** @param {{history: import("./history.js").History}} properties */
export default function Usage({ history }) {
  const { run, shown } = history;
  const usage = useMemo(() => usageOf(shown), [shown]);
  const { rows, models, limits, totals } = usage;
  if (!rows.length) {
    return history.isComplete ? html`<${Empty} icon="coins" title="Nothing used up to this moment">Tokens and cost are counted when a model answers.<//>` : html`<div class="state quiet" aria-busy="true"></div>`;
  }
  const columns = [
    { key: "turn", title: "Turn", width: "8rem", cell: (row) => html`<a href=${viewLink(run.run_id, row.kind === "turn" ? "context" : "events", row.kind === "turn" ? { turn: row.turn } : { seq: row.seq })}>${row.kind === "turn" ? row.turn : "Compaction"}</a>` },
    { key: "model", title: "Model", width: "minmax(9rem, 1fr)", cell: (row) => html`<bdi>${row.model}</bdi>${row.failures ? html` <${Chip} tone="bad" title="calls of this turn that failed">${row.failures} failed<//>` : null}` },
    { key: "input", title: "Input", width: "6rem", align: right, cell: (row) => formatCount(row.input) },
    { key: "read", title: "From cache", width: "6rem", align: right, cell: (row) => formatCount(row.cacheRead) },
    { key: "write", title: "Into cache", width: "6rem", align: right, cell: (row) => formatCount(row.cacheWrite) },
    { key: "output", title: "Output", width: "6rem", align: right, cell: (row) => formatCount(row.output) },
    { key: "tools", title: "Tools", width: "4rem", align: right, cell: (row) => formatCount(row.tools) },
    { key: "cost", title: "Cost", width: "8rem", align: right, cell: (row) => formatMoney(row.cost, row.currency) },
  ];
  return html`<div class="usage">
    <dl class="figures">
      ${[["Input", formatShort(totals.input)], ["From the cache", formatShort(totals.cacheRead)], ["Into the cache", formatShort(totals.cacheWrite)], ["Output", formatShort(totals.output)], ["Model calls", `${formatCount(totals.calls)}${totals.failures ? ` + ${totals.failures} failed` : ""}`], ["Cost", models.some((one) => one.currency !== models[0].currency) ? models.map((one) => formatMoney(one.cost, one.currency)).join(", ") : formatMoney(totals.cost, totals.currency)]].map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
    ${limits.map((one) => html`<p class=${`note ${one.severity === "hard" ? "bad" : "warn"}`} key=${one.seq}><b>${one.severity === "hard" ? "Hard" : "Soft"} limit of ${one.scope} <bdi>${one.scope_id}</bdi></b>: <bdi>${one.message || `${formatCount(one.used)} of ${formatCount(one.limit)} ${one.unit} in ${one.window}`}</bdi> <a href=${viewLink(run.run_id, "events", { seq: one.seq })}>record ${one.seq}</a></p>`)}
    <${Bars} rows=${rows} />
    <div class="card"><header><h2>By turn</h2></header><${Table} label="Usage by turn" columns=${columns} rows=${rows} rowKey=${(row) => row.key} rowHeight=${ROW} height=${`${Math.min(rows.length, 12) * ROW + 37}px`} keys=${false} /></div>
    <div class="card"><header><h2>By model</h2></header><${PlainTable} label="Usage by model" rows=${models} rowKey=${(row) => row.key} columns=${[
      { key: "model", title: "Model", cell: (row) => html`<bdi>${row.model}</bdi> <span class="dim">${row.provider}</span>` },
      { key: "calls", title: "Calls", align: right, cell: (row) => formatCount(row.calls), sort: (row) => row.calls },
      { key: "input", title: "Input", align: right, cell: (row) => formatCount(row.input), sort: (row) => row.input },
      { key: "cache", title: "From / into cache", align: right, cell: (row) => `${formatCount(row.cacheRead)} / ${formatCount(row.cacheWrite)}` },
      { key: "output", title: "Output", align: right, cell: (row) => formatCount(row.output), sort: (row) => row.output },
      { key: "cost", title: "Cost", align: right, cell: (row) => formatMoney(row.cost, row.currency), sort: (row) => row.cost },
    ]} /></div>
    ${run.children ? html`<${Children} run=${run} />` : null}
  </div>`;
}

/** Tokens of each turn as stacked bars; the table below has the same figures. */
function Bars({ rows }) {
  const bars = bucketed(rows, BARS_MAX);
  const most = Math.max(1, ...bars.map((bar) => PARTS.reduce((sum, [part]) => sum + bar[part], 0)));
  const titleOf = (bar) => `${bar.name}: ${PARTS.filter(([part]) => bar[part]).map(([part, name]) => `${name} ${formatCount(bar[part])}`).join(", ")}, cost ${formatMoney(bar.cost, bar.currency)}`;
  return html`<figure class="card usage-bars" aria-label="Tokens by turn">
    <div class="usage-scale" aria-hidden="true"><span>${formatShort(most)}</span><span>${formatShort(Math.round(most / 2))}</span><span>0</span></div>
    <div class="usage-columns" style=${{ height: `${HEIGHT}px` }} aria-hidden="true">
      ${bars.map((bar) => html`<span key=${bar.key} class=${bar.kind} title=${titleOf(bar)}>${PARTS.map(([part, , tone]) => (bar[part] ? html`<i key=${part} style=${{ height: `${(bar[part] / most) * HEIGHT}px`, background: `var(--${tone})` }}></i>` : null))}</span>`)}
    </div>
    <figcaption>${PARTS.map(([part, name, tone]) => html`<span key=${part}><i style=${{ background: `var(--${tone})` }}></i>${name}</span>`)}<span class="dim">tokens by turn${bars.length < rows.length ? `, ${Math.ceil(rows.length / bars.length)} turns in one bar` : ""}</span></figcaption>
  </figure>`;
}

/** What the runs below this one used. @param {{run: Api.Run}} properties */
function Children({ run }) {
  const tree = useResource((signal) => runs.all({ root_run_id: run.root_run_id || run.run_id }, { signal }), [run.root_run_id, run.run_id, run.children, run.status]);
  return html`<div class="card"><header><h2>Children</h2><a href=${viewLink(run.run_id, "tree")}>Tree</a></header><div class="inside"><${Resource} of=${tree} rows=${2}>${(data) => {
    const sums = sumsOf(descendantsOf(data.runs, run.run_id));
    return html`<dl class="figures">${[["Runs", `${formatCount(sums.runs)}${sums.live ? `, ${sums.live} live` : ""}`], ["Input", formatShort(sums.input)], ["Cache", formatShort(sums.cached)], ["Output", formatShort(sums.output)], ["Cost", Object.entries(sums.cost).map(([currency, micros]) => formatMoney(micros, currency)).join(", ") || formatMoney(0, run.currency)]].map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;
  }}<//></div></div>`;
}
