// The result of a verification: green, red or amber, with what was verified, by which keys, and what does not fit.
import { html } from "../../ui.js";
import { Chip, Id } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { LongText } from "../../components/json.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount, formatDuration } from "../../components/time.js";
import { link } from "../../router.js";
import { FINDINGS, findingsOf, keysOf, verdictOf } from "./audit_model.js";
import { placeOfAggregate } from "./model.js";

const ICONS = { good: "shield-check", bad: "octagon-x", warn: "triangle-alert" };
const FINDINGS_MAX = 200;

/** @param {{result: any}} properties of POST /v1/_audit/verify */
export function Verdict({ result }) {
  const verdict = verdictOf(result);
  const keys = keysOf(result);
  const findings = findingsOf(result);
  const runs = result.partitions.filter((one) => one.run).map((one) => one.run);
  return html`<section class="fields" aria-label="Result">
    <div class=${`log-verdict ${verdict.tone}`} role="status"><${Icon} name=${ICONS[verdict.tone]} size=${30} />
      <div><h2>${verdict.title}</h2><p>${verdict.text}</p>
        <p class="number">${formatDuration(result.seconds * 1_000)}, ${formatCount(result.records_per_s)} records a second${runs.map((run) => html`; <a href=${link(`/runs/${encodeURIComponent(run.run_id)}/events`)}>${run.run_id}</a> has records ${run.first_seq} to ${run.seq}${run.ended ? ", and has ended" : ""}`)}</p></div></div>
    ${keys.length
      ? html`<section class="card" aria-label="Keys"><${PlainTable} label="Keys" rows=${keys} rowKey=${(key) => key.key_id} columns=${[
          { key: "key", title: "Key", cell: (key) => html`<${Id} id=${key.key_id} short=${0} />` },
          { key: "trust", title: "Trusted here", cell: (key) => (key.isKnown ? html`<${Chip} tone="good">yes<//>` : html`<${Chip} tone="bad" title=${FINDINGS.unknown_key}>not known<//>`) },
          { key: "checkpoints", title: "Checkpoints", align: "right", cell: (key) => formatCount(key.checkpoints) },
          { key: "records", title: "Offsets signed", align: "right", cell: (key) => (key.isKnown ? formatCount(key.records) : "–") },
        ]} /></section>`
      : null}
    ${findings.length ? html`<${Findings} findings=${findings} />` : null}
    <section class="card" aria-label="Partitions verified"><header><h2>Partitions</h2></header><${PlainTable} label="Partitions verified" rows=${result.partitions} rowKey=${(one) => `${one.topic}/${one.partition}`} columns=${[
      { key: "place", title: "Partition", sort: (one) => `${one.topic}/${one.partition}`, cell: (one) => html`<a class="mono nowrap" href=${link(`/log/${one.topic}/${one.partition}`)}>${one.topic}/${one.partition}</a>` },
      { key: "clean", title: "Result", cell: (one) => (one.clean ? html`<${Chip} tone="good" icon="check">fits<//>` : html`<${Chip} tone="bad" icon="circle-x">does not fit<//>`) },
      { key: "range", title: "Offsets", align: "right", cell: (one) => html`<span class="nowrap" title=${one.deleted_before ? `Those before ${one.deleted_before} were deleted when their time was over` : undefined}>${formatCount(one.first_offset)} to ${formatCount(one.next_offset)}</span>` },
      { key: "events", title: "Events", align: "right", sort: (one) => one.events, cell: (one) => formatCount(one.events) },
      { key: "claims", title: "Claims", align: "right", cell: (one) => formatCount(one.claims) },
      { key: "stale", title: "Stale", align: "right", cell: (one) => formatCount(one.stale) },
      { key: "covered", title: "Covered by signatures", align: "right", cell: (one) => formatCount(one.covered) },
      { key: "unsigned", title: "Not signed yet", align: "right", cell: (one) => formatCount(one.unsigned) },
      { key: "newest", title: "Newest checkpoint", cell: (one) => (one.newest_checkpoint ? html`<span class="nowrap">before ${formatCount(one.newest_checkpoint.next_offset)}, <${Time} at=${one.newest_checkpoint.at_ms} /></span>` : html`<span class="dim">none</span>`) },
    ]} /></section>
  </section>`;
}

function Findings({ findings }) {
  const shown = findings.slice(0, FINDINGS_MAX);
  return html`<section class="card" aria-labelledby="findings-title"><header><h2 id="findings-title">Findings</h2><span class="dim number">${formatCount(findings.length)}</span></header>
    <${PlainTable} label="Findings" rows=${shown} columns=${[
      { key: "kind", title: "Finding", cell: (one) => html`<${Chip} tone=${one.violation ? "bad" : ""} title=${FINDINGS[one.kind]}>${one.kind.replaceAll("_", " ")}<//>` },
      { key: "place", title: "Where", cell: (one) => (one.offset < 0 ? html`<span class="mono nowrap">${one.topic}/${one.partition}</span>` : html`<a class="mono nowrap" href=${link(`/log/${one.topic}/${one.partition}`, { from: one.offset })}>${one.topic}/${one.partition}/${one.offset}</a>`) },
      { key: "count", title: "Records", align: "right", cell: (one) => formatCount(one.count) },
      { key: "run", title: "Run or aggregate", cell: (one) => html`<${Owner} id=${one.run_id} seq=${one.seq} />` },
      { key: "detail", title: "What", cell: (one) => html`<div>${FINDINGS[one.kind] ?? ""}</div>${one.detail ? html`<div class="dim"><${LongText} text=${one.detail} /></div>` : null}` },
    ]} />
    ${findings.length > shown.length ? html`<p class="hint inside">The first ${FINDINGS_MAX} of ${formatCount(findings.length)}; loomlog audit verify lists all.</p>` : null}</section>`;
}

function Owner({ id, seq }) {
  const place = placeOfAggregate(id, seq > 0 ? seq : null);
  if (!id) return html`<span class="dim">–</span>`;
  return html`<${Id} id=${id} short=${/^r_/.test(id) ? 10 : 0} href=${place ? link(place.path, place.query) : undefined} />${seq > 0 ? html` <span class="dim nowrap">seq ${seq}</span>` : null}`;
}
