// One record of the log in full: where it lies, its envelope, what caused it, its payload or its bytes, and how to get it.
import { html, useState } from "../../ui.js";
import { log } from "../../api.js";
import { Button, CopyButton, Id } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { Json } from "../../components/json.js";
import { ErrorState } from "../../components/states.js";
import { Time, formatBytes } from "../../components/time.js";
import { useAction } from "../../resource.js";
import { here, link } from "../../router.js";
import { toneOf } from "../run/records.js";
import { claimText, commandsOf, fromBase64, hexDump, placeOfAggregate, placeOfCause, runOfCause, whyStale } from "./model.js";

const HEX_MAX = 4_096;
const FIRST_HASH = /^0+$/;

/** @param {{record: any, onBefore: (() => void) | null, onAfter: (() => void) | null, onClose: () => void}} properties */
export function RecordPanel({ record, onBefore, onAfter, onClose }) {
  const commands = commandsOf(record, location.origin);
  const owner = placeOfAggregate(record.run_id, record.seq);
  const place = `${record.topic}/${record.partition}/${record.offset}`;
  const headers = Object.entries(record.headers);
  return html`<section class="card record" aria-label=${`Record ${record.offset}`}>
    <header><h2><span class=${`record-type ${record.kind === "legal" ? toneOf(record) : ""}`}>${record.type ?? "Unreadable record"}</span> <small class="dim">offset ${record.offset}</small></h2>
      <${Button} kind="quiet" small icon="step-back" label="The record before" isDisabled=${!onBefore} onClick=${() => onBefore?.()} />
      <${Button} kind="quiet" small icon="step-forward" label="The next record" isDisabled=${!onAfter} onClick=${() => onAfter?.()} />
      <${Button} kind="quiet" small icon="x" label="Close" onClick=${onClose} /></header>
    <div class="inside">
      <${KindNote} record=${record} />
      <dl class="facts">
        <dt>Time</dt><dd><${Time} at=${record.at} /> <span class="dim mono">${record.at}</span></dd>
        <dt>Place</dt><dd><span class="mono">${place}</span> <${CopyButton} text=${place} label="Copy the place" /></dd>
        ${record.run_id
          ? html`<dt>${/^r_/.test(record.run_id) ? "Run" : "Aggregate"}</dt><dd><${Id} id=${record.run_id} short=${0} href=${owner ? link(owner.path, owner.query) : undefined} />
              <div class="dim">${record.seq === null ? "" : `seq ${record.seq}, `}<a href=${link(here.value.path, { run_id: record.run_id, from: record.offset })}>only its records</a></div></dd>`
          : null}
        ${record.tenant_id ? html`<dt>Tenant</dt><dd><bdi>${record.tenant_id}</bdi></dd>` : null}
        ${record.term === null && record.term_in_force === null ? null : html`<dt>Term</dt><dd class="number">${record.kind === "claim" ? record.term_in_force : (record.term ?? "none")}${record.kind === "stale" ? html` <span class="dim">in force: ${record.term_in_force}</span>` : null}</dd>`}
        <dt>Key</dt><dd>${record.key === null ? html`<span class="dim">none</span>` : html`<${Id} id=${record.key} short=${0} />`}</dd>
        <dt>Size</dt><dd class="number">${formatBytes(record.size_bytes)}</dd>
        <${Cause} record=${record} />
        ${record.prev_hash ? html`<dt>Hash before</dt><dd><${Chain} record=${record} /></dd>` : null}
        ${headers.length ? html`<dt>Headers</dt><dd><details><summary class="dim">${headers.length === 1 ? "1 header" : `${headers.length} headers`}</summary><dl class="facts inner">${headers.map(([name, value]) => html`<dt><bdi>${name}</bdi></dt><dd class="mono"><bdi>${value}</bdi></dd>`)}</dl></details></dd>` : null}
      </dl>
      <div class="actions">
        <${CopyButton} text=${commands.curl} label="Copy a curl command for this record"><span>curl</span><//>
        <${CopyButton} text=${commands.cli} label="Copy the loomlog command for this record"><span>loomlog</span><//>
        ${owner ? html`<a href=${link(owner.path, owner.query)}>Open ${owner.title}</a>` : null}
      </div>
      ${record.kind === "unreadable" ? html`<${Bytes} bytes=${fromBase64(record.value_base64 ?? "")} size=${record.size_bytes} />` : html`<${Json} value=${record.payload} open=${2} label="Payload" />`}
    </div>
  </section>`;
}

/** @param {{record: Api.LoggedRecord}} properties */
function KindNote({ record }) {
  if (record.kind === "claim") return html`<p class="note">${claimText(record)}. Records of earlier terms that come after this one are stale.</p>`;
  if (record.kind === "stale") return html`<p class="note warn"><b>Stale.</b> ${whyStale(record)}</p>`;
  if (record.kind === "unreadable") return html`<p class="note bad"><b>Unreadable.</b> <bdi>${record.error}</bdi></p>`;
  return null;
}

/** What caused a record: the command that its owner answered. @param {{record: Api.LoggedRecord}} properties */
function Cause({ record }) {
  const action = useAction();
  const [command, setCommand] = useState(/** @type {any} */ (null));
  if (!record.cause_id && record.cause_offset === null) return null;
  const place = placeOfCause(record);
  const run = runOfCause(record.cause_id);
  const read = () =>
    action.run(async () => {
      if (!place) return;
      const page = await log.records(place.topic, place.partition, { from: place.offset, limit: 1 });
      const [found] = page.records;
      if (found?.offset !== place.offset) throw new Error("The command has been deleted: commands are kept for a limited time.");
      setCommand(found);
    });
  return html`<dt>Cause</dt><dd>
    ${record.cause_id ? html`<${Id} id=${record.cause_id} short=${0} href=${run && run !== record.run_id ? link(`/runs/${run}`) : undefined} />` : null}
    ${place ? html`<div><a class="mono" href=${link(`/log/${place.topic}/${place.partition}`, { from: place.offset })}>${place.topic}/${place.partition}/${place.offset}</a> ${command ? null : html`<${Button} small kind="quiet" isBusy=${action.isBusy} onClick=${read}>Show it here<//>`}</div>` : null}
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    ${command ? html`<div class="record-command"><b>${command.type ?? "unreadable"}</b><${Json} value=${command.payload} open=${1} label="The command" /></div>` : null}
  </dd>`;
}

/** The hash of the aggregate's record before, and where the whole chain is verified. @param {{record: Api.LoggedRecord}} properties */
function Chain({ record }) {
  return html`${FIRST_HASH.test(record.prev_hash ?? "")
      ? html`<span class="dim">none: this is the first record of the ${/^r_/.test(record.run_id ?? "") ? "run" : "aggregate"}</span>`
      : html`<${Id} id=${record.prev_hash} short=${0} />`}
    ${record.run_id ? html`<div><a href=${link("/log/audit", { what: "run", run: record.run_id })}>Verify its whole chain</a></div>` : null}`;
}

/** Bytes as a table of hexadecimal numbers and characters. @param {{bytes: Uint8Array, size?: number}} properties size: bytes of the whole value */
export function Bytes({ bytes, size = bytes.length }) {
  const [most, setMost] = useState(HEX_MAX);
  if (!bytes.length) return html`<p class="dim"><${Icon} name="info" size=${13} /> It has no value.</p>`;
  return html`<div class="log-bytes" role="group" aria-label="Bytes">
    <pre class="block" tabindex="0" aria-label="Bytes in hexadecimal numbers">${hexDump(bytes, most)}</pre>
    ${bytes.length > most ? html`<button class="link" type="button" onClick=${() => setMost(most * 4)}>${(bytes.length - most).toLocaleString()} more bytes</button>` : null}
    ${size > bytes.length ? html`<p class="hint">The first ${formatBytes(bytes.length)} of ${formatBytes(size)}. The command above gets the record itself.</p>` : null}
  </div>`;
}
