// The whole tree of a run: parents, children, residents and forks, drawn and as a list; fresh while anything of it is live.
import { html, useEffect, useState } from "../../ui.js";
import { runs, seg } from "../../api.js";
import { Chip, Id } from "../../components/controls.js";
import { Graph } from "../../components/graph.js";
import { ErrorState, Resource } from "../../components/states.js";
import { RunStatus } from "../../components/status.js";
import { Duration, Time, formatCount, formatDuration, formatMoney, formatShort, toMs } from "../../components/time.js";
import { Table } from "../../components/table.js";
import { standOf } from "../../outcome.js";
import { useResource } from "../../resource.js";
import { link } from "../../router.js";
import { NODES_MAX, sumsOf, toneOfRun, treeRows } from "./tree_model.js";

const EVERY_MS = 2_000;
/** While every live run only waits for somebody. */
const EVERY_WAITING_MS = 10_000;
const ROW = 34;

/** @param {any} run @param {AbortSignal} signal */
async function readTree(run, signal) {
  const root = run.root_run_id || run.run_id;
  let forksError = null;
  const [tree, forks] = await Promise.all([
    runs.all({ root_run_id: root }, { signal }),
    runs.all({ forked_from_root: root }, { signal }).catch((error) => {
      if (signal.aborted) throw error;
      forksError = error;
      return { runs: [], isAll: true };
    }),
  ]);
  const first = tree.runs.find((one) => one.run_id === root) ?? run;
  const origin = first.forked_from ? await runs.one(first.forked_from.run_id, { signal }).catch(() => null) : null;
  return { root, runs: tree.runs, forks: forks.runs, forksError, origin, isAll: tree.isAll && forks.isAll };
}

/** @param {{history: import("./history.js").History}} properties */
export default function Tree({ history }) {
  const { run } = history;
  const [everyMs, setEvery] = useState(run.status === "running" ? EVERY_MS : 0);
  const tree = useResource((signal) => readTree(run, signal), [run.root_run_id, run.run_id], { everyMs });
  useEffect(() => {
    const live = [...(tree.data?.runs ?? []), ...(tree.data?.forks ?? [])].filter((one) => one.status === "running");
    if (tree.data) setEvery(!live.length ? 0 : live.every((one) => standOf(one) !== "running") ? EVERY_WAITING_MS : EVERY_MS);
  }, [tree.data]);
  return html`<${Resource} of=${tree}>${(data) => html`<${Drawn} data=${data} run=${run} />`}<//>`;
}

/** @param {{data: any, run: Api.Run}} properties */
function Drawn({ data, run }) {
  const rows = treeRows(data.runs, data.forks, data.origin);
  const drawn = rows.slice(0, NODES_MAX);
  const sums = sumsOf(data.runs);
  const nodes = drawn.map(({ run: one, parent, isFork }) => ({
    id: one.run_id,
    parent,
    title: `${one.agent}${one.resident ? " (resident)" : ""}${isFork ? ` (fork at ${one.forked_from?.seq ?? "?"})` : ""}`,
    sub: [standOf(one), one.completed_at ? formatDuration(toMs(one.completed_at) - toMs(one.started_at)) : "", one.cost_micros ? formatMoney(one.cost_micros, one.currency) : ""].filter(Boolean).join(" · "),
    tone: toneOfRun(one),
    href: link(`/runs/${seg(one.run_id)}/tree`),
    dashed: isFork,
  }));
  const columns = [
    { key: "agent", title: "Run", width: "minmax(8rem, 1fr)", cell: (row) => html`<span style=${{ paddingLeft: `${Math.min(row.depth, 12) * 16}px` }}><a href=${link(`/runs/${seg(row.run.run_id)}/tree`)} aria-current=${row.run.run_id === run.run_id ? "true" : undefined}><bdi>${row.run.agent}</bdi></a> ${row.isFork ? html`<${Chip} icon="git-fork">fork<//>` : null}${row.run.resident ? html`<${Chip}>resident<//>` : null}</span>` },
    { key: "id", title: "Id", width: "6.6rem", cell: (row) => html`<${Id} id=${row.run.run_id} short=${8} />` },
    { key: "status", title: "Status", width: "10.4rem", cell: (row) => html`<${RunStatus} run=${row.run} />` },
    { key: "started", title: "Started", width: "5.8rem", cell: (row) => html`<${Time} at=${row.run.started_at} />` },
    { key: "duration", title: "Duration", width: "5.4rem", align: /** @type {"right"} */ ("right"), cell: (row) => html`<${Duration} from=${row.run.started_at} to=${row.run.completed_at} />` },
    { key: "tokens", title: "Tokens in / out", width: "7rem", align: /** @type {"right"} */ ("right"), cell: (row) => `${formatShort(row.run.usage.input_tokens + row.run.usage.cache_read_input_tokens + row.run.usage.cache_creation_input_tokens)} / ${formatShort(row.run.usage.output_tokens)}` },
    { key: "cost", title: "Cost", width: "6.6rem", align: /** @type {"right"} */ ("right"), cell: (row) => formatMoney(row.run.cost_micros, row.run.currency) },
    { key: "compare", title: "Compare", width: "4.6rem", cell: (row) => (row.run.run_id === run.run_id ? html`<span class="dim">this run</span>` : html`<a href=${link(`/runs/${seg(run.run_id)}/compare/${seg(row.run.run_id)}`)}>Compare</a>`) },
  ];
  return html`<div class="tree">
    <p class="dim">${formatCount(sums.runs)} ${sums.runs === 1 ? "run" : "runs"} in the tree, ${sums.live ? `${sums.live} live, ` : ""}${formatCount(data.forks.length)} ${data.forks.length === 1 ? "fork" : "forks"}; ${formatShort(sums.input + sums.cached)} tokens in, ${formatShort(sums.output)} out${Object.entries(sums.cost).map(([currency, micros]) => `, ${formatMoney(micros, currency)}`).join("")}. Dashed lines lead to forks.${data.isAll ? "" : " Only the first thousand are shown."}</p>
    ${data.forksError ? html`<${ErrorState} error=${data.forksError} compact />` : null}
    <${Graph} nodes=${nodes} current=${run.run_id} label="Tree of the run" />
    ${drawn.length < rows.length ? html`<p class="note">The drawing has the first ${NODES_MAX} of ${formatCount(rows.length)} runs; the table has all.</p>` : null}
    <div class="card"><${Table} label="Runs of the tree" columns=${columns} rows=${rows} rowKey=${(row) => row.run.run_id} rowHeight=${ROW} height=${`${Math.min(rows.length, 14) * ROW + 37}px`} rowClass=${(row) => (row.run.run_id === run.run_id ? "active" : "")} /></div>
  </div>`;
}
