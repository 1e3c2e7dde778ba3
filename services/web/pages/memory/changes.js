// What changes in memory, as it happens: keys and times, never values.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { link } from "../../router.js";
import { me } from "../../session.js";
import { follow } from "../../stream.js";
import { nameOf, pathOf, withChanges } from "./model.js";

const WORDS = { "memory.set": ["", "set"], "memory.delete": ["warn", "deleted"], "memory.scope_deleted": ["bad", "scope dropped"] };

/** @param {{place: {scope: string, id: string} | null, tenant: string}} properties place: only the changes of this scope */
export function ChangeFeed({ place, tenant }) {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [held, setHeld] = useState(/** @type {any[]} */ ([]));
  const [feed, setFeed] = useState(/** @type {any} */ (null));
  const [stream, setStream] = useState({ state: "connecting", error: /** @type {any} */ (null) });
  const [isPaused, setPaused] = useState(false);
  const [text, setText] = useState("");
  const paused = useRef(false);
  paused.current = isPaused;
  useEffect(() => {
    const opened = follow(memory.changesPath(tenant ? { tenant } : {}), {
      whileVisible: true,
      onState: (state, error) => setStream({ state, error: error ?? null }),
      onFrames: (frames) => {
        const first = frames.find((frame) => frame.event === "feed");
        if (first) setFeed(first.data);
        const changes = frames.filter((frame) => frame.event === "change").map((frame) => frame.data);
        if (changes.length) (paused.current ? setHeld : setRows)((before) => withChanges(before, changes));
      },
    });
    return () => opened.stop();
  }, [tenant]);
  const go = () => {
    if (isPaused) (setRows(withChanges(rows, [...held].reverse())), setHeld([]));
    setPaused(!isPaused);
  };
  const wanted = text.trim().toLowerCase();
  const shown = rows.filter((row) => (!place || (row.scope === place.scope && (row.scope_id ?? "") === place.id)) && (!wanted || `${row.scope} ${row.scope_id ?? ""} ${row.key ?? ""}`.toLowerCase().includes(wanted)));
  const seesAll = Boolean(me.value?.is_admin) && !tenant;
  const to = (row) => link(pathOf(row.scope, row.scope_id ?? ""), { tenant: seesAll && row.tenant !== me.value?.tenant_id ? row.tenant : tenant, key: row.key });
  if (stream.state === "ended" && stream.error) return html`<${ErrorState} error=${stream.error} />`;
  if (feed && !feed.enabled) return html`<${Empty} icon="activity" title="The feed of changes is off" command="export LOOMLOG_MEMORY_CHANGES_ENABLED=1"><p>Set it for the api and the projector, and start them again.</p><//>`;
  return html`
    <div class="bar list-filters">
      <${Button} small kind=${isPaused ? "primary" : ""} icon=${isPaused ? "play" : "pause"} onClick=${go} title=${isPaused ? "Shows what has changed since" : "What is shown stays as it is"}>${isPaused ? `Go on${held.length ? ` (${formatCount(held.length)} new)` : ""}` : "Pause"}<//>
      <input class="search" type="search" aria-label="Search changes" placeholder="Search scope or key" value=${text} onInput=${(event) => setText(event.currentTarget.value)} />
      ${stream.state === "waiting" ? html`<${Chip} tone="warn">connecting again<//>` : null}
      ${feed?.gap ? html`<${Chip} tone="warn" title="Changes in between are not kept any more">older changes are gone<//>` : null}
      <span class="grow"></span><span class="dim number" role="status">${shown.length ? `${formatCount(shown.length)} shown` : ""}</span>
    </div>
    <${Table}
      label="Changes" rows=${shown} rowKey=${(row) => String(row.seq)} href=${to} isLoading=${!feed && !rows.length} rowHeight=${34}
      empty=${html`<${Empty} icon="activity" title=${rows.length ? "No change fits" : "Nothing has changed in the last day"}><p>${place ? `Changes of ${nameOf(place.scope, place.id)} appear here as they happen.` : "Changes appear here as they happen."}</p><//>`}
      columns=${[
        { key: "at", title: "Time", width: "8.5rem", cell: (row) => html`<${Time} at=${row.at} />` },
        { key: "type", title: "What", width: "7.5rem", cell: (row) => html`<${Chip} tone=${(WORDS[row.type] ?? ["", ""])[0]}>${(WORDS[row.type] ?? ["", row.type])[1]}<//>` },
        { key: "tenant", title: "Tenant", width: "7rem", hidden: !seesAll, cell: (row) => html`<bdi>${row.tenant}</bdi>` },
        { key: "scope", title: "Scope", width: "minmax(8rem, 1fr)", cell: (row) => html`<span class="dim">${row.scope}</span> <bdi>${row.scope_id ?? ""}</bdi>` },
        { key: "key", title: "Key", width: "minmax(10rem, 2fr)", cell: (row) => html`<a href=${to(row)} title=${row.key}><bdi>${row.key ?? "all keys"}</bdi></a>` },
        { key: "seq", title: "Number", width: "5.5rem", align: "right", cell: (row) => html`<span class="number dim">${row.seq}</span>` },
      ]}
    />`;
}
