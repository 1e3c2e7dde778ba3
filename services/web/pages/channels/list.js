// The channels that a tenant sees, with what their queues hold.
import { html, useState } from "../../ui.js";
import { channels } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { BroadcastDialog } from "./publish.js";
import { DeclareDialog } from "./declare.js";
import { may } from "../../session.js";
import { SCOPES, SOURCES, filtered, formatKept, publisherOf } from "./model.js";

const EVERY_MS = 5_000;

/** The address of a channel's page. @param {string} name @param {Record<string, any>} [query] */
export const channelLink = (name, query = {}) => link(`/channels/${name.split("/").map(encodeURIComponent).join("/")}`, query);

/** @param {{source: string}} properties */
export function Source({ source }) {
  const [tone, word, title] = SOURCES[source] ?? ["", source, ""];
  return html`<${Chip} tone=${tone} title=${title}>${word}<//>`;
}

export function ChannelList() {
  const { query } = here.value;
  const tenant = query.get("tenant") ?? "";
  const filters = { text: query.get("q") ?? "", scope: query.get("scope") ?? "", source: query.get("source") ?? "" };
  const list = useResource((signal) => channels.list({ tenant }, { signal }), [tenant], { everyMs: EVERY_MS });
  const [asked, setAsked] = useState("");
  const rows = filtered(list.data?.channels ?? [], filters);
  const isFiltered = Boolean(filters.text || filters.scope || filters.source);
  const path = (row) => channelLink(row.name, { tenant });
  return html`<div class="page full">
    <header>
      <h1>Channels</h1>
      <span class="dim">Queues between agents, applications and people.</span>
      <span class="grow"></span>
      ${may("channel:publish") ? html`<${Button} icon="send" onClick=${() => setAsked("broadcast")}>Broadcast<//>` : null}
      ${may("substrate:tenant") ? html`<${Button} kind="primary" icon="plus" onClick=${() => setAsked("new")}>New channel<//>` : null}
    </header>
    <div class="bar list-filters">
      <input class="search" type="search" aria-label="Search channels" placeholder="Search name or description" value=${filters.text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
      <select aria-label="Scope" value=${filters.scope} onChange=${(event) => setQuery({ scope: event.currentTarget.value })}>
        <option value="">any scope</option>${Object.keys(SCOPES).map((scope) => html`<option value=${scope} key=${scope}>${scope}</option>`)}
      </select>
      <select aria-label="Declared" value=${filters.source} onChange=${(event) => setQuery({ source: event.currentTarget.value })}>
        <option value="">any source</option>${Object.entries(SOURCES).map(([source, [, word]]) => html`<option value=${source} key=${source}>${word}</option>`)}
      </select>
      <${TenantField} />
      <span class="grow"></span>
      <span class="dim number" role="status">${list.data ? `${formatCount(rows.length)} shown` : ""}</span>
    </div>
    <${Resource} of=${list}>${() => html`<${Table}
      label="Channels"
      rows=${rows}
      rowKey=${(row) => row.name}
      href=${path}
      columns=${columns(path)}
      empty=${isFiltered
        ? html`<${Empty} icon="search" title="No channel fits these filters"><p class="actions"><${Button} onClick=${() => setQuery({ q: "", scope: "", source: "" })}>Show all<//></p><//>`
        : html`<${Empty} icon="radio" title="There is no channel yet" command="loomlog channels create orders --ttl 7d"><p>Declare one here, with the command line, or under <code>channels:</code> in a configuration file.</p><//>`}
    />`}<//>
    ${asked === "new" ? html`<${DeclareDialog} tenant=${tenant} onClose=${() => setAsked("")} onDone=${(row) => navigate(channelLink(row.name, { tenant }).slice(3))} />` : null}
    ${asked === "broadcast" ? html`<${BroadcastDialog} tenant=${tenant} rows=${list.data?.channels ?? []} onClose=${() => (setAsked(""), list.reload())} />` : null}
  </div>`;
}

/** @returns {import("../../components/table.js").Column<any>[]} */
function columns(path) {
  return [
    { key: "name", title: "Name", width: "minmax(12rem, 1.6fr)", cell: (row) => html`<a href=${path(row)} title=${row.name}><bdi>${row.name}</bdi></a>` },
    { key: "scope", title: "Scope", width: "4rem", cell: (row) => html`<span title=${SCOPES[row.scope]}>${row.scope}</span>` },
    { key: "messages", title: "Messages", width: "4.5rem", align: "right", cell: (row) => (row.message_count ? formatCount(row.message_count) : html`<span class="dim">0</span>`) },
    { key: "newest", title: "Newest", width: "6.25rem", align: "right", cell: (row) => html`<${Time} at=${row.newest_visible_at} relative />` },
    { key: "oldest", title: "Oldest", width: "6.25rem", align: "right", cell: (row) => html`<${Time} at=${row.oldest_visible_at} relative />` },
    { key: "kept", title: "Kept", width: "4rem", align: "right", cell: (row) => formatKept(row.default_ttl) },
    { key: "publisher", title: "Published by", width: "7.5rem", cell: (row) => html`<span class="soft">${publisherOf(row)}</span>` },
    { key: "source", title: "Source", width: "6.5rem", cell: (row) => html`<${Source} source=${row.source} />` },
    { key: "description", title: "Description", width: "minmax(5rem, 1.4fr)", cell: (row) => html`<bdi class="soft" title=${row.description}>${row.description.slice(0, 300)}</bdi>` },
  ];
}
