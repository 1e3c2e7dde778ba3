// How the runs of a version were judged: the figures by score, dimension and kind of judge, and each judgement.
import { html } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Id } from "../../components/controls.js";
import { Json, LongText } from "../../components/json.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { usePages, useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";

const PAGE_SIZE = 50;
const ROLES = { external: "people and services", self: "the run itself", parent: "the run that started it", sibling: "a run beside it", unrelated: "another run" };

/** @param {{id: string, tenant: string}} properties id: def_id of an agent's version */
export function Judgements({ id, tenant }) {
  const withLineage = here.value.query.get("lineage") === "true";
  const sums = useResource((signal) => /** @type {Promise<Api.EvaluationAggregated>} */ (library.judgements({ op: "aggregate", def_id: id, include_lineage: withLineage }, { tenant }, { signal })), [id, tenant, withLineage]);
  const list = usePages(
    async (cursor, signal) => {
      const answer = /** @type {Api.EvaluationsOfDefinition} */ (await library.judgements({ op: "list_for_def", def_id: id, limit: PAGE_SIZE, ...(cursor ? { cursor } : {}) }, { tenant }, { signal }));
      return { rows: answer.evaluations, next: answer.next ?? null };
    },
    [id, tenant],
  );
  return html`<div class="stack">
    <div class="bar"><select aria-label="Which judgements are summed up" value=${String(withLineage)} onChange=${(event) => setQuery({ lineage: event.currentTarget.value === "true" ? "true" : "" })}><option value="false">of this version</option><option value="true">with those of the versions it was made from</option></select></div>
    <${Resource} of=${sums}>${(data) => (data.count ? html`<${Sums} data=${data} />` : null)}<//>
    ${list.error ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />` : null}
    <${PlainTable}
      label="Judgements" rows=${list.rows} rowKey=${(row) => row.eval_id}
      empty=${list.isLoading || list.error ? null : html`<${Empty} icon="circle-check" title="No run of this version was judged" command="loomlog evals submit RUN SCORE"><p>People, services and other runs judge a run with a score.</p><//>`}
      columns=${[
        { key: "run", title: "Run", cell: (row) => html`<${Id} id=${row.run_id} href=${link(`/runs/${encodeURIComponent(row.run_id)}`)} />` },
        { key: "score", title: "Score", align: "right", sort: (row) => row.score, cell: (row) => number(row.score) },
        { key: "by", title: "Judged by", cell: (row) => html`<span class="nowrap">${ROLES[row.emitter_role] ?? row.emitter_role}</span>${row.emitter_run_id ? html` <${Id} id=${row.emitter_run_id} href=${link(`/runs/${encodeURIComponent(row.emitter_run_id)}`)} />` : null}` },
        { key: "why", title: "Why", cell: (row) => html`${row.rationale ? html`<${LongText} text=${row.rationale} />` : html`<span class="dim">–</span>`}${row.judgement === undefined || row.judgement === null ? null : html`<${Json} value=${row.judgement} open=${0} label="Judgement" />`}` },
        { key: "dimensions", title: "Dimensions", cell: (row) => html`<span class="soft"><bdi>${Object.entries(row.dimensions ?? {}).map(([name, value]) => `${name} ${number(value)}`).join(", ") || "–"}</bdi></span>` },
        { key: "at", title: "Time", align: "right", sort: (row) => row.created_at, cell: (row) => html`<span class="nowrap"><${Time} at=${row.created_at} /></span>` },
      ]}
    />
    ${list.isComplete || !list.rows.length ? null : html`<p><${Button} isBusy=${list.isLoading} onClick=${list.more}>Show more<//></p>`}
  </div>`;
}

function Sums({ data }) {
  const rows = [
    { name: "score", ...data.score },
    ...Object.entries(data.dimensions ?? {}).map(([name, sums]) => ({ name, ...sums })),
    ...Object.entries(data.by_emitter_role ?? {}).map(([role, sums]) => ({ name: `score by ${ROLES[role] ?? role}`, ...sums })),
  ];
  const figure = (key, title) => ({ key, title, align: /** @type {"right"} */ ("right"), cell: (row) => number(row[key]) });
  return html`<${PlainTable} label="Figures" rows=${rows} rowKey=${(row) => row.name} columns=${[{ key: "name", title: "Figure", cell: (row) => html`<bdi>${row.name}</bdi>` }, figure("mean", "Mean"), figure("median", "Median"), figure("min", "Lowest"), figure("max", "Highest"), figure("latest", "Latest"), { key: "count", title: "Judgements", align: "right", cell: (row) => formatCount(row.count) }]} />`;
}

const number = (value) => (typeof value === "number" ? value.toLocaleString(undefined, { maximumFractionDigits: 3 }) : "–");
