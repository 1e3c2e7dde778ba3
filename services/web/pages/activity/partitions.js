// The partitions of the log: who owns each, since when, how far the read models are; and how the owners changed.
import { html } from "../../ui.js";
import { Chip } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { link } from "../../router.js";
import { ownersOf, partitionsOf, takeoversOf } from "./model.js";

const TAKEOVERS_SHOWN = 50;
const REASONS = {
  assigned: "given to it by the consumer group",
  fenced: "another owner had written under a later term",
  unknown_outcome: "the outcome of a write was unknown",
  standby: "a standby took over from an owner whose socket broke",
};

/** @param {{list: any}} properties a resource of GET /v1/_partitions */
export function Partitions({ list }) {
  return html`<div class="partition-cards">
    <section class="card"><header><h2>Partitions</h2>${list.data ? html`<${Owners} owners=${ownersOf(list.data)} />` : null}</header>
      <${Resource} of=${list} rows=${6}>${(data) => html`<div class="scrolls" tabindex="0" role="group" aria-label="Partitions"><${PlainTable} label="Partitions" rows=${partitionsOf(data)} rowKey=${(row) => `${row.topic}/${row.partition}`} columns=${partitionColumns} empty=${html`<${Empty} title="The log has no partitions yet" command="loomlog topics apply" />`} /></div>`}<//>
    </section>
    <section class="card"><header><h2>Take-overs</h2><small class="dim">newest first</small></header>
      <${Resource} of=${list} rows=${6}>${(data) => html`<div class="scrolls" tabindex="0" role="group" aria-label="Take-overs"><${PlainTable} label="Take-overs" rows=${takeoversOf(data).slice(0, TAKEOVERS_SHOWN)} rowKey=${(row) => `${row.topic}/${row.partition}/${row.term}`} columns=${takeoverColumns} empty=${html`<p class="state quiet">No partition had an owner yet.</p>`} /></div>`}<//>
    </section>
  </div>`;
}

function Owners({ owners }) {
  return html`<span class="chips">${owners.map((one) => html`<${Chip} key=${one.owner} tone=${one.owner ? "" : "bad"} title=${`${formatCount(one.lag)} records behind`}><bdi>${one.owner || "no owner"}</bdi>: ${one.partitions}<//>`)}</span>`;
}

const record = (topic, partition, offset) => link(`/log/${topic}/${partition}`, { from: offset });

const partitionColumns = [
  { key: "topic", title: "Partition", sort: (row) => `${row.topic}/${String(row.partition).padStart(6, "0")}`, cell: (row) => html`<a href=${link(`/log/${row.topic}/${row.partition}`)}>${row.topic} ${row.partition}</a>` },
  { key: "owner", title: "Owner", sort: (row) => row.owner, cell: (row) => (row.owner ? html`<bdi>${row.owner}</bdi>` : html`<span class="bad">none</span>`) },
  { key: "since", title: "Since", sort: (row) => row.since, cell: (row) => html`<${Time} at=${row.since} relative />` },
  { key: "term", title: "Term", align: /** @type {const} */ ("right"), sort: (row) => row.term, cell: (row) => (row.term === null ? html`<span class="dim">–</span>` : html`<a href=${record(row.topic, row.partition, row.term)} title="The record with which this term began">${formatCount(row.term)}</a>`) },
  { key: "records", title: "Records", align: /** @type {const} */ ("right"), sort: (row) => row.end_offset, cell: (row) => formatCount(row.end_offset) },
  { key: "lag", title: "Lag", align: /** @type {const} */ ("right"), sort: (row) => row.lag, cell: (row) => html`<span class=${row.lag > 1_000 ? "bad" : row.lag ? "warn" : "dim"} title="Records that the read models do not include yet">${formatCount(row.lag)}</span>` },
  { key: "projector", title: "Projector", sort: (row) => row.projector, cell: (row) => (row.projector ? html`<bdi>${row.projector}</bdi>` : html`<span class="dim">none</span>`) },
];

const takeoverColumns = [
  { key: "at", title: "Time", cell: (row) => html`<${Time} at=${row.at} />` },
  { key: "partition", title: "Partition", cell: (row) => html`<a href=${record(row.topic, row.partition, row.term)} title="The record of this take-over">${row.name} ${row.partition}</a>` },
  { key: "owner", title: "New owner", cell: (row) => html`<bdi>${row.owner}</bdi>` },
  { key: "reason", title: "Reason", cell: (row) => html`<span title=${REASONS[row.reason] ?? ""}>${row.reason}</span>` },
];
