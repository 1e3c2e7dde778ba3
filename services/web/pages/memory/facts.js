// The facts of a scope: what was learned, in which run, and what has taken its place since.
import { html, useEffect, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Empty, ErrorState, Loading } from "../../components/states.js";
import { Time, formatCount } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { Author, Provenance } from "./entry.js";
import { factText, pathOf } from "./model.js";

const PAGE = 100;
const TEXT_MAX = 400;

/** @param {{place: {scope: string, id: string}, tenant: string, round: number}} properties */
export function Facts({ place, tenant, round }) {
  const shows = here.value.query.get("show") === "superseded" ? "superseded" : "valid";
  const [seen, setSeen] = useState(round);
  const list = usePages(
    /** @returns {Promise<{rows: (Api.MemoryRow | Api.MemorySupersededRow)[], next: string | null}>} */
    async (cursor, signal) => {
      if (shows === "superseded") {
        const answer = await memory.superseded({ scope: place.scope, scope_id: place.id, limit: PAGE, cursor, tenant }, { signal });
        return { rows: answer.superseded, next: answer.next };
      }
      const answer = await memory.keys(place.scope, place.id, { kind: "fact", details: 1, after: cursor, limit: PAGE, tenant }, { signal });
      return { rows: answer.entries, next: answer.truncated ? (answer.entries.at(-1)?.key ?? null) : null };
    },
    [place.scope, place.id, tenant, shows],
  );
  useEffect(() => {
    if (round !== seen) (setSeen(round), list.reload());
  }, [round]);
  return html`<div class="pane-scrolls">
    <div class="bar">
      <${Button} small isPressed=${shows === "valid"} onClick=${() => setQuery({ show: "" })}>Valid now<//>
      <${Button} small isPressed=${shows === "superseded"} onClick=${() => setQuery({ show: "superseded" })}>Superseded<//>
      <span class="grow"></span><span class="dim number" role="status">${list.rows.length ? `${formatCount(list.rows.length)}${list.isComplete ? "" : "+"} shown` : ""}</span>
    </div>
    ${list.error ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} compact=${list.rows.length > 0} />` : null}
    ${!list.rows.length && list.isLoading ? html`<${Loading} rows=${5} label="Loading facts" />` : null}
    ${!list.rows.length && list.isComplete
      ? shows === "valid"
        ? html`<${Empty} icon="bookmark" title="No fact is known here"><p>Agents learn facts with the operation add of the Memory tool, and the consolidator from chats. An entry that an agent sets with provenance is a fact too.</p><//>`
        : html`<${Empty} icon="bookmark" title="No fact was superseded in the last 30 days"><p>The consolidator archives a fact when a later one contradicts it.</p><//>`
      : null}
    <ol class="memory-hits">${list.rows.map((row) => html`<${Fact} key=${`${row.key}/${row.revision}`} row=${row} place=${place} tenant=${tenant} isOver=${shows === "superseded"} />`)}</ol>
    ${list.rows.length && !list.isComplete ? html`<p><${Button} small isBusy=${list.isLoading} onClick=${list.more}>More<//></p>` : null}
  </div>`;
}

function Fact({ row, place, tenant, isOver }) {
  const to = (key) => link(pathOf(place.scope, place.id), { tenant, key });
  const text = row.value === undefined ? "" : factText(row.value);
  const confidence = row.value?.confidence ?? row.value?.metadata?.confidence;
  return html`<li class="card">
    <p class=${`text memory-text${isOver && text ? " superseded" : ""}`}>${text ? html`<bdi>${text.slice(0, TEXT_MAX)}${text.length > TEXT_MAX ? "…" : ""}</bdi>` : html`<span class="dim">Its value is not kept any more.</span>`}</p>
    <div class="line soft">
      <a class="memory-key" href=${to(row.key)}><bdi>${row.key}</bdi></a>
      ${row.provenance ? html`<${Provenance} of=${row.provenance} knownRun=${row.source?.run_id ?? ""} />` : null}
      ${typeof confidence === "number" ? html`<span>confidence <b class="number">${confidence}</b></span>` : null}
      <span class="grow"></span>
      ${isOver
        ? html`<${Chip} tone="warn">superseded<//>`
        : html`<span>set <${Time} at=${row.updated_at} /> by <${Author} source=${row.source} /></span>${row.expires_at ? html`<span>valid until <${Time} at=${row.expires_at} /></span>` : null}`}
    </div>
    ${isOver
      ? html`<div class="line soft">${row.valid_from ? html`<span>valid from <${Time} at=${row.valid_from} /> to <${Time} at=${row.at} /></span>` : html`<span>until <${Time} at=${row.at} /></span>`}<span>archived by <${Author} source=${row.source} /></span>${row.by_key ? html`<span>in its place: <a href=${to(row.by_key)}><bdi>${row.by_key}</bdi></a></span>` : null}${row.reason ? html`<span>because: <bdi>${row.reason}</bdi></span>` : null}</div>`
      : null}
  </li>`;
}
