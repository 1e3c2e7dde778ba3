// The runs that were pinned to a version of an agent, newest first.
import { html } from "../../ui.js";
import { library } from "../../api.js";
import { Id } from "../../components/controls.js";
import { Empty, ErrorState } from "../../components/states.js";
import { RunStatus } from "../../components/status.js";
import { Table } from "../../components/table.js";
import { Duration, Time, formatCount, formatMoney, formatShort } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { link } from "../../router.js";

const PAGE_SIZE = 100;

/** @param {{id: string, name: string, tenant: string}} properties id: def_id */
export function Runs({ id, name, tenant }) {
  const list = usePages(
    async (cursor, signal) => {
      const answer = await library.runs(id, { tenant, limit: PAGE_SIZE, cursor }, { signal });
      return { rows: answer.runs, next: answer.next };
    },
    [id, tenant],
  );
  const path = (row) => link(`/runs/${encodeURIComponent(row.run_id)}`);
  if (list.error) return html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`;
  return html`<${Table}
    label="Runs of this version" rows=${list.rows} rowKey=${(row) => row.run_id} href=${path} onEnd=${list.more} isComplete=${list.isComplete} isLoading=${list.isLoading} height="min(60vh, 480px)"
    empty=${html`<${Empty} icon="list" title="No run began with this version" command=${`loomlog run ${name} "..."`}><p>A run is pinned to the version that is active when it begins. Runs of what a file says are pinned to none.</p><//>`}
    columns=${[
      { key: "run", title: "Run", width: "9rem", cell: (row) => html`<${Id} id=${row.run_id} href=${path(row)} />` },
      { key: "status", title: "Status", width: "10rem", cell: (row) => html`<${RunStatus} run=${row} />` },
      { key: "who", title: "Who", width: "minmax(6rem, 1fr)", cell: (row) => html`<bdi>${row.user_id || "–"}</bdi>` },
      { key: "started", title: "Started", width: "8rem", align: "right", cell: (row) => html`<${Time} at=${row.started_at} />` },
      { key: "duration", title: "Duration", width: "7rem", align: "right", cell: (row) => html`<${Duration} from=${row.started_at} to=${row.completed_at} />` },
      { key: "calls", title: "Model calls", width: "6rem", align: "right", cell: (row) => formatCount(row.iterations) },
      { key: "tokens", title: "Tokens", width: "6rem", align: "right", cell: (row) => formatShort(row.usage.input_tokens + row.usage.output_tokens) },
      { key: "cost", title: "Cost", width: "7rem", align: "right", cell: (row) => formatMoney(row.cost_micros, row.currency) },
    ]}
  />`;
}
