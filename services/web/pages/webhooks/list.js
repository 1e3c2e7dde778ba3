// The webhooks: what each does with a request, and how it is proven.
import { html } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Chip, CopyButton } from "../../components/controls.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { activeId, useContent } from "./content.js";
import { addressOf, addressPath, proofOf } from "./model.js";

const LIMIT = 200;
const SOURCES = { file: ["info", "file"], tenant: ["", "made here"], shared: ["", "shared"] };

/** @param {any} row @param {string} tenant */
export const webhookLink = (row, tenant) => link(`/webhooks/${addressOf(row).split("/").map(encodeURIComponent).join("/")}`, { tenant });

export function WebhookList() {
  const { query } = here.value;
  const tenant = query.get("tenant") ?? "";
  const text = query.get("q") ?? "";
  const source = query.get("source") ?? "";
  const list = usePages(
    async (cursor, signal) => {
      const answer = await library.list({ kind: "webhook", tenant, limit: LIMIT, cursor }, { signal });
      return { rows: answer.definitions, next: answer.next };
    },
    [tenant],
  );
  const wanted = text.trim().toLowerCase();
  const rows = list.rows.filter((row) => (!source || row.source === source) && (!wanted || `${row.name} ${row.description ?? ""}`.toLowerCase().includes(wanted)));
  const path = (row) => webhookLink(row, tenant);
  return html`<div class="page full">
    <header>
      <h1>Webhooks</h1>
      <span class="dim">Requests from outside that start a run or go to a channel.</span>
      <span class="grow"></span>
      <${Button} icon="library" href=${link("/library/webhook", { tenant })}>Definitions<//>
      <${Button} kind="primary" icon="plus" href=${link("/library/create/webhook", { tenant })}>New webhook<//>
    </header>
    <div class="bar list-filters">
      <input class="search" type="search" aria-label="Search webhooks" placeholder="Search name or description" value=${text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
      <select aria-label="Declared" value=${source} onChange=${(event) => setQuery({ source: event.currentTarget.value })}>
        <option value="">any source</option>${Object.entries(SOURCES).map(([key, [, word]]) => html`<option value=${key} key=${key}>${word}</option>`)}
      </select>
      <${TenantField} />
      <span class="grow"></span>
      <span class="dim number" role="status">${list.isLoading && !rows.length ? "" : `${formatCount(rows.length)}${list.isComplete ? "" : "+"} shown`}</span>
    </div>
    ${list.error
      ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`
      : html`<${Table}
          label="Webhooks"
          rows=${rows}
          rowKey=${(row) => `${row.tenant_id ?? ""}/${row.name}`}
          href=${path}
          onEnd=${list.more}
          isComplete=${list.isComplete}
          isLoading=${list.isLoading}
          empty=${wanted || source
            ? html`<${Empty} icon="search" title="No webhook fits these filters"><p class="actions"><${Button} onClick=${() => setQuery({ q: "", source: "" })}>Show all<//></p><//>`
            : html`<${Empty} icon="webhook" title="There is no webhook yet" command="loomlog defs create issues --kind webhook --file webhook.yaml"><p>Make one here, with the command line, or under <code>webhooks:</code> in a configuration file.</p><//>`}
          columns=${[
            { key: "name", title: "Name", width: "minmax(9rem, 1.2fr)", cell: (row) => html`<a href=${path(row)} title=${row.name}><bdi>${row.name}</bdi></a>` },
            { key: "state", title: "State", width: "4.5rem", cell: (row) => html`<${WithContent} row=${row} tenant=${tenant} show=${(definition) => html`<${WebhookState} row=${row} definition=${definition} />`} />` },
            { key: "does", title: "What it does", width: "minmax(9rem, 1.2fr)", cell: (row) => html`<${WithContent} row=${row} tenant=${tenant} show=${doesWords} />` },
            { key: "proof", title: "Proof", width: "5.5rem", cell: (row) => html`<${WithContent} row=${row} tenant=${tenant} show=${proofCell} />` },
            { key: "rate", title: "Per minute", width: "5.5rem", align: "right", cell: (row) => html`<${WithContent} row=${row} tenant=${tenant} show=${(definition) => formatCount(definition.rate_limit?.requests_per_minute || 60)} />` },
            { key: "address", title: "Address", width: "minmax(11rem, 1.6fr)", cell: (row) => html`<span class="id" title=${addressPath(addressOf(row))}><code>…/${addressOf(row)}</code><${CopyButton} text=${location.origin + addressPath(addressOf(row))} label="Copy the address" /></span>` },
            { key: "source", title: "Source", width: "5.5rem", cell: (row) => html`<${Chip} tone=${SOURCES[row.source]?.[0] ?? ""}>${SOURCES[row.source]?.[1] ?? row.source}<//>` },
            { key: "changed", title: "Changed", width: "6.25rem", align: "right", cell: (row) => html`<${Time} at=${row.last_updated} relative />` },
          ]}
        />`}
  </div>`;
}

/** A cell that needs the content of the version in force. */
function WithContent({ row, tenant, show }) {
  const definition = useContent(activeId(row), tenant);
  if (definition === undefined) return html`<span class="dim" aria-busy="true">…</span>`;
  return definition === null ? html`<span class="dim">–</span>` : show(definition);
}

/** @param {{row: any, definition: any}} properties */
export function WebhookState({ row, definition }) {
  if (!activeId(row)) return html`<${Chip} title="No version of it is active: it answers 404">not active<//>`;
  return definition?.enabled === false ? html`<${Chip} title="It says enabled: false, and answers 404 like one that there is not">off<//>` : html`<${Chip} tone="good">on<//>`;
}

const doesWords = (definition) =>
  definition.delivery === "channel" ? html`<span title="The whole body becomes a message">publishes to <bdi>${definition.channel}</bdi></span>` : html`<span>starts <bdi>${definition.agent}</bdi></span>`;

function proofCell(definition) {
  const proof = proofOf(definition.auth);
  return html`<span class=${proof.kind === "none" ? "warn" : ""} title=${`${proof.header ? `${proof.header}: ` : ""}${proof.text}`}>${proof.word}</span>`;
}
