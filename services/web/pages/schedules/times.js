// The next times of a schedule, in the zone of who looks, in its own and in UTC.
import { html } from "../../ui.js";
import { PlainTable } from "../../components/table.js";
import { formatDuration, lazyTimeFormat, toMs } from "../../components/time.js";
import { Countdown } from "./list.js";

const formatHere = lazyTimeFormat({ weekday: "short", month: "short", day: "2-digit", second: "2-digit" });
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";

/** "2026-11-26 09:00:00 +01:00" as "2026-11-26 09:00:00". @param {string} text */
const plain = (text) => text.slice(0, 19).replace("T", " ");

/** @param {{preview: any, isShort?: boolean}} properties */
export function NextTimes({ preview, isShort = false }) {
  const zone = preview.timezone;
  const isDelayed = preview.instants.some((one) => one.jitter_ms > 0);
  return html`<${PlainTable}
    label="Next times"
    rows=${preview.instants}
    rowKey=${(one) => one.instant}
    empty=${html`<p class="hint">There is no time ahead.</p>`}
    columns=${[
      { key: "in", title: "In", cell: (one) => html`<span class="nowrap"><${Countdown} at=${one.fires_at} /></span>` },
      { key: "here", title: OWN_ZONE === "UTC" ? "UTC" : `Here (${OWN_ZONE})`, cell: (one) => html`<span class="number">${formatHere(toMs(one.instant))}</span>` },
      { key: "zone", title: zone, hidden: zone === OWN_ZONE || zone === "UTC", cell: (one) => html`<span class="number nowrap" title=${one.local}>${plain(one.local)}</span>` },
      { key: "utc", title: "UTC", hidden: isShort || OWN_ZONE === "UTC", cell: (one) => html`<span class="number nowrap">${plain(one.instant)}</span>` },
      { key: "delay", title: "Put off by", align: "right", hidden: !isDelayed, cell: (one) => html`<span title="jitter_ms: always the same for one time">${formatDuration(one.jitter_ms)}</span>` },
    ]}
  />`;
}
