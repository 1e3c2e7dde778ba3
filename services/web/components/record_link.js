// The way from what is shown to the record of the log that caused it. The log is for administrators: others copy the position.
import { html } from "../ui.js";
import { placeOf, recordOfRun, recordsOf } from "../places.js";
import { link } from "../router.js";
import { may } from "../session.js";
import { CopyButton } from "./controls.js";

const LOG = "substrate:admin";

/** One record. @param {{position?: string | null, label?: string}} properties position: topic/partition:offset; label: what it says */
export function RecordLink({ position, label = "record" }) {
  if (!position) return html`<span class="dim">–</span>`;
  if (!may(LOG)) return html`<${CopyButton} text=${position} label=${`Copy the position of the record: ${position}`}>${label}<//>`;
  return html`<a class="nowrap" href=${link(placeOf(position))} title=${position}>${label}</a>`;
}

/**
 * All records of an aggregate, or those of one type from a time on; nothing for callers who may not see the log.
 * @param {{aggregate: string, from?: string, type?: string, label?: string}} properties
 */
export function RecordsLink({ aggregate, from, type, label = "records" }) {
  if (!may(LOG)) return null;
  return html`<a class="nowrap" href=${link(recordsOf(aggregate, { from, type }))} title=${`The records of ${aggregate} in the log`}>${label}</a>`;
}

/** A record of a run, among its events. @param {{run: string, seq?: number, type?: string, text?: string, label?: string}} properties */
export function RunRecordLink({ run, seq, type, text, label = "record" }) {
  return html`<a class="nowrap" href=${link(recordOfRun(run, { seq, type, text }))}>${label}</a>`;
}
