// The read models: how far behind the log they are, records they lack, and aggregates in which nothing is decided until they are repaired.
import { html } from "../../ui.js";
import { log, operations } from "../../api.js";
import { Chip, CopyButton, Id } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { LongText } from "../../components/json.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount, formatDuration } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { placeOfAggregate } from "./model.js";
import { Repair } from "./repair.js";

const EVERY_MS = 3_000;
const PROBLEMS_EVERY_MS = 10_000;
/** A projector tells every second; after so many seconds of silence it may be gone. */
const SILENT_S = 10;

/** What kept a record out of the read models. @type {Record<string, string>} */
const PROBLEMS = {
  undecodable: "Its bytes cannot be decoded.",
  unknown_schema: "Its schema is not known: it was written by a newer version.",
  unwritable: "It can be decoded, but the database cannot store it.",
  broken_sequence: "It does not follow the record before it of the same run or aggregate.",
  offset_gap: "Records before it are missing: the log has been cut.",
  unusable_row: "The stored state of its aggregate cannot be used.",
  fold_failed: "The state of its aggregate cannot be computed from it: a defect.",
};

export function ProjectionsTab() {
  const progress = useResource((signal) => operations.projections({ signal }), [], { everyMs: EVERY_MS });
  const problems = useResource((signal) => log.problems({}, { signal }), [], { everyMs: PROBLEMS_EVERY_MS });
  const aggregate = here.value.query.get("aggregate") ?? "";
  return html`<div class="log-audit">
    <${Resource} of=${progress}>${(data) => html`<${Figures} data=${data} />`}<//>
    <section class="card" aria-labelledby="problems-title">
      <header><h2 id="problems-title">Records that could not be projected</h2>${problems.data ? html`<span class="dim number">${formatCount(problems.data.count)}</span>` : null}</header>
      <${Resource} of=${problems} rows=${2}>${(data) => html`<${Problems} data=${data} />`}<//>
    </section>
    <section class="card" aria-labelledby="quarantined-title">
      <header><h2 id="quarantined-title">Aggregates to repair</h2>${problems.data ? html`<span class="dim number">${formatCount(problems.data.quarantined_count)}</span>` : null}</header>
      <${Resource} of=${problems} rows=${2}>${(data) => html`<${Quarantined} data=${data} />`}<//>
    </section>
    ${progress.data ? html`<${Projectors} data=${progress.data} />` : null}
    <${Repair} key=${aggregate} aggregate=${aggregate} onRepaired=${problems.reload} />
  </div>`;
}

function Figures({ data }) {
  const figure = (name, value, tone = "") => html`<div><dt>${name}</dt><dd class=${tone}>${value}</dd></div>`;
  const slowest = data.projectors.reduce((most, one) => Math.max(most, one.lag_ms), 0);
  return html`
    <dl class="figures">
      ${figure("Records of runs behind", formatCount(data.lag), data.lag ? "warn" : "")}
      ${figure("Slowest projector", data.projectors.length ? formatDuration(slowest) : "–", slowest > 10_000 ? "warn" : "")}
      ${figure("Projectors", formatCount(new Set(data.projectors.map((one) => one.owner)).size), data.projectors.length ? "" : "bad")}
      ${figure("Records of runs not projected", formatCount(data.problems), data.problems ? "bad" : "")}
    </dl>`;
}

function Projectors({ data }) {
  return html`
    <section class="card" aria-labelledby="projectors-title"><header><h2 id="projectors-title">Projectors</h2></header><${PlainTable}
      label="Projectors" rows=${data.projectors} rowKey=${(one) => `${one.topic} ${one.owner}`}
      empty=${html`<${Empty} icon="database" title="No projector has said anything" command="loomlog status"><p>Lists and pages show what was projected last. The command shows whether the projector runs.</p><//>`}
      columns=${[
        { key: "topic", title: "Topic", sort: (one) => one.topic, cell: (one) => html`<a class="mono nowrap" href=${link(`/log/${one.topic}`)}>${one.topic}</a>` },
        { key: "owner", title: "Projector", cell: (one) => html`<span class="mono">${one.owner}</span>` },
        { key: "state", title: "State", cell: (one) => html`<${Chip} tone=${one.said_s_ago > SILENT_S ? "bad" : one.state === "projecting" ? "good" : "warn"} title=${`It said so ${formatDuration(one.said_s_ago * 1_000)} ago`}>${one.said_s_ago > SILENT_S ? `silent for ${formatDuration(one.said_s_ago * 1_000)}` : one.state}<//>` },
        { key: "behind", title: "Records behind", align: "right", sort: (one) => one.events_behind, cell: (one) => formatCount(one.events_behind) },
        { key: "lag", title: "Lag", align: "right", sort: (one) => one.lag_ms, cell: (one) => html`<span class="nowrap">${formatDuration(one.lag_ms)}</span>` },
        { key: "applied", title: "Events applied", align: "right", cell: (one) => formatCount(one.applied_events) },
        { key: "stale", title: "Stale passed over", align: "right", cell: (one) => formatCount(one.stale_records) },
        { key: "build", title: "Build", align: "right", cell: (one) => one.build },
      ]}
    /></section>
    <section class="card" aria-labelledby="cursors-title"><header><h2 id="cursors-title">Cursors in <span class="mono">${data.topic}</span></h2></header><${PlainTable}
      label="Cursors" rows=${data.partitions} rowKey=${(one) => String(one.partition)}
      empty=${html`<${Empty} icon="database" title="The topic has no partitions" command="loomlog topics apply" />`}
      columns=${[
        { key: "partition", title: "Partition", sort: (one) => one.partition, cell: (one) => html`<a href=${link(`/log/${data.topic}/${one.partition}`)}>Partition ${one.partition}</a>` },
        { key: "next", title: "Projected to", align: "right", cell: (one) => html`<a href=${link(`/log/${data.topic}/${one.partition}`, { from: Math.max(0, one.next_offset - 1) })}>${formatCount(one.next_offset)}</a>` },
        { key: "end", title: "End of the log", align: "right", cell: (one) => formatCount(one.end_offset) },
        { key: "lag", title: "Behind", align: "right", sort: (one) => one.lag, cell: (one) => html`<span class=${one.lag ? "warn" : ""}>${formatCount(one.lag)}</span>` },
        { key: "term", title: "Term", align: "right", cell: (one) => one.term ?? "–" },
        { key: "epoch", title: "Epoch", align: "right", cell: (one) => one.epoch ?? "–" },
        { key: "owner", title: "Projector", cell: (one) => (one.owner ? html`<span class="mono">${one.owner}</span>` : html`<span class="dim">none yet</span>`) },
      ]}
    /></section>`;
}

/** @param {{data: Api.ProjectionProblemReport}} properties */
function Problems({ data }) {
  return html`<${PlainTable}
      label="Records that could not be projected" rows=${data.problems} rowKey=${(one) => `${one.topic}/${one.partition}/${one.offset} ${one.kind}`}
      empty=${html`<p class="inside log-none"><${Icon} name="circle-check" /> Everything in the log is projected.</p>`}
      columns=${[
        { key: "place", title: "Record", cell: (one) => html`<a class="mono nowrap" href=${link(`/log/${one.topic}/${one.partition}`, { from: one.offset })}>${one.topic}/${one.partition}/${one.offset}</a>` },
        { key: "at", title: "Written", cell: (one) => html`<span class="nowrap"><${Time} at=${one.at} /></span>` },
        { key: "kind", title: "Kind", cell: (one) => html`<${Chip} tone="bad" title=${PROBLEMS[one.kind]}>${one.kind.replaceAll("_", " ")}<//>` },
        { key: "run", title: "Run or aggregate", cell: (one) => html`<${Owner} id=${one.run_id} />` },
        { key: "error", title: "Reason", cell: (one) => html`<${LongText} text=${one.error} />` },
      ]}
    />
    ${data.problems.length
      ? html`<p class="hint inside">${data.count > data.problems.length ? `The first ${formatCount(data.problems.length)} of ${formatCount(data.count)}. ` : ""}Once the cause is removed, <code>loomlog projections rebuild</code> projects them. <${CopyButton} text="loomlog projections rebuild" label="Copy the command" /></p>`
      : null}`;
}

function Owner({ id }) {
  const place = placeOfAggregate(id);
  return html`<${Id} id=${id} short=${/^r_/.test(id ?? "") ? 10 : 0} href=${place ? link(place.path, place.query) : undefined} />`;
}

/** @param {{data: Api.ProjectionProblemReport}} properties */
function Quarantined({ data }) {
  return html`<${PlainTable}
      label="Aggregates to repair" rows=${data.quarantined} rowKey=${(one) => one.aggregate}
      empty=${html`<p class="inside log-none"><${Icon} name="circle-check" /> No aggregate is quarantined. Runs that are quarantined have <a href=${link("/runs", { waits: "quarantined" })}>a list of their own</a>.</p>`}
      columns=${[
        { key: "aggregate", title: "Aggregate", cell: (one) => html`<${Owner} id=${one.aggregate} />` },
        { key: "reason", title: "Why nothing is decided in it", cell: (one) => html`<${LongText} text=${one.reason} />` },
        { key: "seq", title: "Seq", align: "right", cell: (one) => formatCount(one.seq) },
        { key: "look", title: html`<span class="spoken">Repair</span>`, align: "right", cell: (one) => html`<button class="link" type="button" onClick=${() => setQuery({ aggregate: one.aggregate })}>Look and repair</button>` },
      ]}
    />
    ${data.quarantined_count > data.quarantined.length ? html`<p class="hint inside">The first ${formatCount(data.quarantined.length)} of ${formatCount(data.quarantined_count)}.</p>` : null}`;
}
