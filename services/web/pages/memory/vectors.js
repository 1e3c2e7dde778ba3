// Vectors of a tenant by model, and what an operator does with those of a scope: first a dry run, then the real one.
import { html, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Json } from "../../components/json.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { formatBytes, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { may } from "../../session.js";
import { nameOf } from "./model.js";

const OPERATIONS = [
  { key: "backfill_embeddings", title: "Make missing vectors", about: "Entries that ask for a vector and have none of any model get one of the present embedder.", todo: (dry) => dry.candidates, done: (answer) => `${formatCount(answer.embedded)} vectors are made${answer.failed ? `, ${formatCount(answer.failed)} failed` : ""}.` },
  { key: "reembed", title: "Make all vectors again", about: "Entries whose vector is of another model than the present embedder get a new one.", todo: (dry) => dry.rows_to_reembed, done: (answer) => `${formatCount(answer.rows_reembedded)} vectors are made${answer.rows_failed ? `, ${formatCount(answer.rows_failed)} failed` : ""}.` },
  { key: "purge_stale_embeddings", title: "Remove stale vectors", about: "Vectors of models that neither answer searches nor are being made are removed.", todo: (dry) => dry.stale, done: (answer) => `${formatCount(answer.purged)} vectors are removed.` },
];

/** @param {{place: {scope: string, id: string} | null, tenant: string}} properties */
export function Vectors({ place, tenant }) {
  const statistics = useResource((signal) => memory.embedStats({ tenant }, { signal }), [tenant]);
  return html`<div class="pane-scrolls">
    <section class="card">
      <header><h2>Models of the tenant</h2>${statistics.data ? html`<small class="dim number">${formatBytes(statistics.data.total_embedding_bytes)}</small>` : null}</header>
      <${Resource} of=${statistics} rows=${2}>${(of) => html`
        ${(of.notes ?? []).map((note) => html`<p class="note warn" key=${note}>${note}</p>`)}
        <${PlainTable} label="Models" rows=${of.models} rowKey=${(row) => `${row.provider}/${row.model}/${row.dimension}`}
          empty=${html`<${Empty} icon="layers" title="There is no vector yet" command=${`loomlog memory set user ada colour '"red"' --embed`}><p>An entry that asks for it gets a vector, if an embedder is configured (memory.embedder).</p><//>`}
          columns=${[
            { key: "provider", title: "Provider", cell: (row) => row.provider },
            { key: "model", title: "Model", cell: (row) => row.model },
            { key: "dimension", title: "Numbers", align: "right", cell: (row) => formatCount(row.dimension) },
            { key: "rows", title: "Vectors", align: "right", cell: (row) => formatCount(row.rows) },
            { key: "bytes", title: "Size", align: "right", cell: (row) => formatBytes(row.bytes) },
          ]} />`}<//>
    </section>
    ${!may("substrate:tenant") ? null : place
      ? html`<section class="card"><header><h2>Vectors of ${nameOf(place.scope, place.id)}</h2></header><div class="inside memory-operations">${OPERATIONS.map((operation) => html`<${Operation} key=${operation.key} operation=${operation} place=${place} tenant=${tenant} onDone=${statistics.reload} />`)}</div></section>`
      : html`<p class="hint">Choose a scope at the left to make or remove its vectors.</p>`}
  </div>`;
}

function Operation({ operation, place, tenant, onDone }) {
  const [dry, setDry] = useState(/** @type {any} */ (null));
  const [isAsked, setAsked] = useState(false);
  const action = useAction();
  const query = { scope: place.scope, scope_id: place.id, tenant };
  const look = async () => setDry((await action.run(() => memory.administer(operation.key, { ...query, dry_run: true }))) || null);
  const work = async () => {
    const answer = await memory.administer(operation.key, { ...query, dry_run: false });
    toast(operation.done(answer));
    setDry(null);
    onDone();
  };
  const count = dry ? operation.todo(dry) : 0;
  return html`<div class="stack">
    <div><h3>${operation.title}</h3><p class="soft">${operation.about}</p></div>
    <div class="actions">
      <${Button} small icon="eye" isBusy=${action.isBusy} onClick=${look}>Dry run<//>
      ${dry ? html`<span class="number">${count ? `${formatCount(count)} ${count === 1 ? "entry" : "entries"}` : "nothing to do"}</span>` : null}
      ${dry && count ? html`<${Button} small kind=${operation.key === "purge_stale_embeddings" ? "danger" : "primary"} onClick=${() => setAsked(true)}>${operation.title}<//>` : null}
    </div>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    ${dry ? html`<details><summary class="soft">What the dry run says</summary><${Json} value=${dry} open=${2} label="Answer of the dry run" /></details>` : null}
    ${isAsked ? html`<${Confirm} title=${`${operation.title}?`} confirm=${operation.title} danger=${operation.key === "purge_stale_embeddings"} onClose=${() => setAsked(false)} onConfirm=${work}><p>This is done for ${formatCount(count)} ${count === 1 ? "entry" : "entries"} of ${nameOf(place.scope, place.id)}.${operation.key === "purge_stale_embeddings" ? "" : " Each is sent to the embedder once, which may cost."}</p><//>` : null}
  </div>`;
}
