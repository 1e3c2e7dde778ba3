// The entries of a scope, by key.
import { html, useEffect, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Chip } from "../../components/controls.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatBytes, formatCount } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { oneLine } from "../../values.js";
import { nameOf, pathOf } from "./model.js";

const PAGE = 100;

/** @param {{place: {scope: string, id: string}, tenant: string, round: number}} properties */
export function Entries({ place, tenant, round }) {
  const prefix = here.value.query.get("prefix") ?? "";
  const list = usePages(
    async (cursor, signal) => {
      const answer = await memory.keys(place.scope, place.id, { prefix, after: cursor, limit: PAGE, details: 1, tenant }, { signal });
      return { rows: answer.entries, next: answer.truncated ? (answer.entries.at(-1)?.key ?? null) : null };
    },
    [place.scope, place.id, prefix, tenant],
  );
  const [seen, setSeen] = useState(round);
  useEffect(() => {
    if (round !== seen) (setSeen(round), list.reload());
  }, [round]);
  const to = (row) => link(pathOf(place.scope, place.id), { tenant, prefix, key: row.key });
  return html`
    <div class="bar list-filters">
      <input class="search" type="search" aria-label="Keys that begin with" placeholder="Keys that begin with" value=${prefix} onInput=${(event) => setQuery({ prefix: event.currentTarget.value })} />
      <span class="grow"></span><span class="dim number" role="status">${list.rows.length ? `${formatCount(list.rows.length)}${list.isComplete ? "" : "+"} shown` : ""}</span>
    </div>
    ${list.error && !list.rows.length
      ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`
      : html`${list.error ? html`<${ErrorState} error=${list.error} onRetry=${list.more} compact />` : null}<${Table}
          label=${`Entries of ${nameOf(place.scope, place.id)}`} rows=${list.rows} rowKey=${(row) => row.key} href=${to} onEnd=${list.more} isComplete=${list.isComplete} isLoading=${list.isLoading}
          empty=${html`<${Empty} icon="database" title=${prefix ? "No key begins with this" : "There is no entry here"} command=${`loomlog memory set ${place.scope}${place.id ? ` ${place.id}` : ""} colour '"red"'`}><p>Agents write with the Memory tool; an operator with New entry, or the command line.</p><//>`}
          columns=${[
            { key: "key", title: "Key", width: "minmax(8rem, 1fr)", cell: (row) => html`<a href=${to(row)} title=${row.key}><bdi>${row.key}</bdi></a>` },
            { key: "value", title: "Value", width: "minmax(8rem, 1.8fr)", cell: (row) => html`${row.provenance ? html`<${Chip} tone="info" title="A fact: it says where it was learned">fact<//> ` : null}<bdi class="mono soft">${oneLine(row.value, 200)}</bdi>` },
            { key: "vector", title: "Vector", width: "3.5rem", cell: (row) => html`<${Vector} row=${row} />` },
            { key: "bytes", title: "Size", width: "4.5rem", align: "right", cell: (row) => (row.bytes === undefined ? html`<span class="dim">–</span>` : formatBytes(row.bytes)) },
            { key: "expires", title: "Expires", width: "6.5rem", align: "right", cell: (row) => (row.expires_at ? html`<${Time} at=${row.expires_at} relative />` : html`<span class="dim">never</span>`) },
            { key: "changed", title: "Changed", width: "6.5rem", align: "right", cell: (row) => html`<${Time} at=${row.updated_at} relative />` },
          ]}
        />`}`;
}

function Vector({ row }) {
  if (row.embedded_with) return html`<span title=${`${row.embedded_with.provider}/${row.embedded_with.model}, ${row.embedded_with.dimension} numbers`}>yes</span>`;
  return row.embed ? html`<span class="warn" title="It asks for a vector, and has none of its present value">waits</span>` : html`<span class="dim">no</span>`;
}
