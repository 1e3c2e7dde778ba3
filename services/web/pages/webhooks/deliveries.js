// The last deliveries of a webhook with what became of them; one that was taken can be given again.
import { html, useState } from "../../ui.js";
import { webhooks } from "../../api.js";
import { Button, Chip, Id } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { RecordLink } from "../../components/record_link.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useResource } from "../../resource.js";
import { link } from "../../router.js";
import { LastStatus } from "../schedules/list.js";
import { VERDICTS, detailOf, verdictOf } from "./model.js";

const MOST = 50;
const EVERY_MS = 4_000;
/** One that takes no requests and never had any answers 404: it is asked less often. */
const EVERY_EMPTY_MS = 20_000;

/** @param {{address: string, isOn: boolean, definition: any}} properties isOn: whether it takes requests, and so replays */
export function Deliveries({ address, isOn, definition }) {
  const [verdict, setVerdict] = useState("");
  const [replayed, setReplayed] = useState(/** @type {any} */ (null));
  const [isEmpty, setEmpty] = useState(false);
  const recent = useResource(
    async (signal) => {
      try {
        const { deliveries } = await webhooks.recent(address, { limit: MOST }, { signal });
        setEmpty(false);
        return deliveries;
      } catch (error) {
        if (error.status !== 404) throw error;
        setEmpty(true);
        return [];
      }
    },
    [address],
    { everyMs: isEmpty ? EVERY_EMPTY_MS : EVERY_MS },
  );
  const all = recent.data ?? [];
  const rows = verdict ? all.filter((one) => (verdict === "rejected" ? !one.verdict.startsWith("accepted") : one.verdict === verdict)) : all;
  const count = (test) => all.filter(test).reduce((sum, one) => sum + (one.count ?? 1), 0);
  const filter = (key, word, test) => html`<${Button} small isPressed=${verdict === key} onClick=${() => setVerdict(key)}>${word} <small class="count">${formatCount(count(test))}</small><//>`;
  return html`
    <div class="bar">
      ${filter("", "All", () => true)}
      ${filter("accepted", "Accepted", (one) => one.verdict === "accepted")}
      ${filter("accepted_replay", "Repeated", (one) => one.verdict === "accepted_replay")}
      ${filter("rejected", "Rejected", (one) => !one.verdict.startsWith("accepted"))}
      <span class="grow"></span><span class="dim">the last ${MOST}, of 30 days</span>
    </div>
    <section class="card" aria-label="Deliveries">
      <${Resource} of=${recent}>${() => html`<${PlainTable}
        label="Deliveries"
        rows=${rows}
        rowKey=${(one) => `${one.delivery_id ?? ""} ${one.received_at} ${one.verdict}`}
        empty=${html`<${Empty} icon="webhook" title=${all.length ? "No delivery of this kind" : "Nothing was delivered yet"} command=${all.length ? undefined : `loomlog webhooks test ${address} body.json`}><p>${all.length ? "" : "Requests appear here with what became of them, also those that were refused."}</p><//>`}
        columns=${[
          { key: "time", title: "Received", cell: (one) => html`<span class="nowrap"><${Time} at=${one.received_at} /></span>` },
          { key: "verdict", title: "Verdict", cell: (one) => html`<${Verdict} verdict=${one.verdict} />${one.count ? html` <span class="dim nowrap" title="Refused requests of a few seconds are one row">× ${formatCount(one.count)}</span>` : null}` },
          { key: "id", title: "Delivery id", cell: (one) => (one.delivery_id ? html`<span class="delivery"><${Id} id=${one.delivery_id} short=${22} /></span>` : html`<span class="dim">several</span>`) },
          { key: "result", title: "Result", cell: (one) => html`<${Result} one=${one} />` },
          { key: "detail", title: "Detail", cell: (one) => html`<${Detail} one=${one} />` },
          { key: "record", title: "Record", cell: (one) => html`<span class="nowrap"><${RecordLink} position=${one.position} />${one.source_position ? html` <span class="dim">·</span> <${RecordLink} position=${one.source_position} label="request" />` : null}</span>` },
          { key: "replay", title: html`<span class="spoken">Again</span>`, align: "right", cell: (one) => (isOn && one.verdict === "accepted" && one.delivery_id ? html`<${Button} small icon="rotate-ccw" onClick=${() => setReplayed(one)}>Replay<//>` : null) },
        ]}
      />`}<//>
    </section>
    ${replayed ? html`<${Replay} address=${address} one=${replayed} definition=${definition} onClose=${() => setReplayed(null)} onDone=${recent.reload} />` : null}
  `;
}

/** @param {{verdict: string}} properties */
export function Verdict({ verdict }) {
  const [tone, word, why] = verdictOf(verdict);
  return html`<${Chip} tone=${tone} title=${`${verdict}${VERDICTS[verdict] ? `: ${why}` : ""}`}>${word}<//>`;
}

function Result({ one }) {
  if (one.run_id) return html`<span class="actions"><${Id} id=${one.run_id} href=${link(`/runs/${one.run_id}`)} />${one.verdict === "accepted" ? html`<${LastStatus} status=${one.status} />` : null}</span>`;
  if (one.channel) return html`<a href=${link(`/channels/${one.channel.split("/").map(encodeURIComponent).join("/")}`)}><bdi>${one.channel}</bdi></a>${one.status ? html` <${Chip} tone="bad">${one.status}<//>` : null}`;
  return html`<span class="dim">–</span>`;
}

function Detail({ one }) {
  const parts = detailOf(one);
  return html`<bdi class="soft" title=${parts}>${parts.slice(0, 160)}${parts.length > 160 ? "…" : ""}</bdi>`;
}

function Replay({ address, one, definition, onClose, onDone }) {
  const replay = async () => {
    const answer = await webhooks.replay(address, one.delivery_id);
    const what = answer.run_id ? html`: <a href=${link(`/runs/${answer.run_id}`)}>the run</a>` : answer.channel ? ` to ${answer.channel}` : "; what becomes of it is in the list soon";
    toast(html`It was replayed${what}.`);
    onDone();
  };
  return html`<${Confirm} title="Replay this delivery?" confirm="Replay" onClose=${onClose} onConfirm=${replay}>
    <p>The request <code>${one.delivery_id.slice(0, 80)}</code> is taken once more, with the definition as it is now${definition?.delivery === "channel" ? ": a further message is published" : ": a further run starts"}. Its signature is not asked for again. Requests are kept for two weeks.</p>
  <//>`;
}
