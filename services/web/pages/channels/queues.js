// The queues of a channel that has one for each user or agent.
import { html, useEffect, useState } from "../../ui.js";
import { channels } from "../../api.js";
import { Button } from "../../components/controls.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { setQuery } from "../../router.js";
import { channelLink } from "./list.js";

const LIMIT = 200;

/** @param {{row: any, tenant: string, onKnown: (ids: string[]) => void}} properties onKnown: gets the users or agents that have queues, as far as they were read */
export function Queues({ row, tenant, onKnown }) {
  const [text, setText] = useState("");
  const list = usePages(
    async (cursor, signal) => {
      const answer = await channels.queues(row.name, { cursor, limit: LIMIT, tenant }, { signal });
      return { rows: answer.queues, next: answer.next };
    },
    [row.name, tenant],
  );
  useEffect(() => onKnown(list.rows.map((one) => one.scope_id)), [list.rows.length]);
  const path = (one) => channelLink(row.name, { tenant, scope_id: one.scope_id });
  const wanted = text.trim();
  const rows = wanted ? list.rows.filter((one) => one.scope_id.toLowerCase().includes(wanted.toLowerCase())) : list.rows;
  if (list.error) return html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`;
  const open = (event) => (event.preventDefault(), wanted && setQuery({ scope_id: wanted, view: "" }, { replace: false }));
  return html`
    <form class="bar list-filters" onSubmit=${open}>
      <input class="search" type="search" aria-label=${`Search a ${row.scope}`} placeholder=${`Search a ${row.scope}`} value=${text} onInput=${(event) => setText(event.currentTarget.value)} />
      ${wanted && !rows.some((one) => one.scope_id === wanted) ? html`<${Button} small type="submit">Open the queue of ${wanted.slice(0, 40)}<//>` : null}
      <span class="grow"></span>
      <span class="dim number" role="status">${list.rows.length ? `${formatCount(rows.length)}${list.isComplete ? "" : "+"} ${rows.length === 1 ? "queue" : "queues"}` : ""}</span>
    </form>
    <${Table}
      label="Queues"
      rows=${rows}
      rowKey=${(one) => one.scope_id}
      href=${path}
      onEnd=${list.more}
      isComplete=${list.isComplete}
      isLoading=${list.isLoading}
      empty=${wanted ? html`<${Empty} icon="search" title=${`No ${row.scope} that was read so far fits`} />` : html`<${Empty} icon="users" title=${`No ${row.scope} has a queue yet`} command=${`loomlog channels publish ${row.name} '{"text": "hello"}' --scope-id NAME`}><p>A queue is made with its first message.</p><//>`}
      columns=${[
        { key: "id", title: row.scope === "user" ? "User" : "Agent", width: "minmax(10rem, 1.4fr)", cell: (one) => html`<a href=${path(one)}><bdi>${one.scope_id}</bdi></a>` },
        { key: "messages", title: "Messages", width: "6rem", align: "right", cell: (one) => formatCount(one.message_count) },
        { key: "delayed", title: "Delayed", width: "5rem", align: "right", cell: (one) => formatCount(one.delayed) },
        { key: "leased", title: "Leased", width: "5rem", align: "right", cell: (one) => formatCount(one.leased) },
        { key: "waiting", title: "Waiting", width: "5rem", align: "right", cell: (one) => formatCount(one.waiting + one.awaiting) },
        { key: "readers", title: "Readers", width: "5rem", align: "right", cell: (one) => formatCount(one.readers_count) },
        { key: "newest", title: "Newest", width: "7.5rem", align: "right", cell: (one) => html`<${Time} at=${one.newest_visible_at} relative />` },
        { key: "oldest", title: "Oldest", width: "7.5rem", align: "right", cell: (one) => html`<${Time} at=${one.oldest_visible_at} relative />` },
      ]}
    />
  `;
}
