// The messages of a queue, newest or oldest first, live; looking moves no cursor.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { channels } from "../../api.js";
import { Button, Chip, CopyButton, Id } from "../../components/controls.js";
import { Json } from "../../components/json.js";
import { RecordLink } from "../../components/record_link.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatCount, formatTime } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { follow } from "../../stream.js";
import { oneLine } from "../../values.js";
import { PAGE, withNewer } from "./model.js";
import { MoveDialog } from "./readers.js";

const OLDEST = "cur_0";

/** @param {{row: any, scopeId: string, tenant: string, queue: any, onMoved: () => void}} properties */
export function Messages({ row, scopeId, tenant, queue, onMoved }) {
  const order = here.value.query.get("order") === "oldest" ? "oldest" : "newest";
  const list = usePages(
    async (cursor, signal) => {
      const answer = await channels.peek(row.name, { order, from_cursor: cursor, max_messages: PAGE, scope_id: scopeId, tenant }, { signal });
      return { rows: answer.messages, next: answer.next_cursor ?? null };
    },
    [row.name, order, scopeId, tenant],
    { reloadsOnReconnect: false },
  );
  const [isLive, setLive] = useState(true);
  const [selected, setSelected] = useState(/** @type {any} */ (null));
  const state = useFollowed(row.name, { scopeId, tenant, list, isOn: isLive && order === "newest" });
  const [moves, setMoves] = useState(false);
  if (list.error) return html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`;
  return html`
    <div class="bar">
      <${Button} small isPressed=${order === "newest"} icon="arrow-down" onClick=${() => setQuery({ order: "" })}>Newest first<//>
      <${Button} small isPressed=${order === "oldest"} icon="arrow-up" onClick=${() => setQuery({ order: "oldest" })}>Oldest first<//>
      ${order === "newest" ? html`<${Button} small isPressed=${isLive} icon=${isLive ? "pause" : "play"} onClick=${() => setLive(!isLive)} title=${isLive ? "New messages come in at the top" : "What is shown stays as it is"}>${isLive ? "Live" : "Follow"}<//>` : null}
      ${isLive && order === "newest" && state === "waiting" ? html`<${Chip} tone="warn">connecting again<//>` : null}
      <span class="grow"></span>
      <span class="dim number" role="status">${list.rows.length ? `${formatCount(list.rows.length)}${list.isComplete ? "" : "+"} read` : ""}</span>
    </div>
    <div class=${`beside${selected ? " open" : ""}`}>
      <${Table}
        label="Messages"
        rows=${list.rows}
        rowKey=${(one) => one.id}
        rowClass=${(one) => (one.id === selected?.id ? "selected" : "")}
        onOpen=${setSelected}
        onMark=${(one) => selected && setSelected(one)}
        onEnd=${list.more}
        isComplete=${list.isComplete}
        isLoading=${list.isLoading}
        empty=${html`<${Empty} icon="radio" title="There is no message yet" command=${`loomlog channels publish ${row.name} '{"text": "ready"}'`}><p>Messages appear here as they are published.</p><//>`}
        columns=${[
          { key: "time", title: "Published", width: "8.5rem", cell: (one) => html`<${Time} at=${one.published_at} />` },
          { key: "value", title: "Message", width: "minmax(12rem, 1fr)", cell: (one) => html`<bdi class="mono">${oneLine(one.value)}</bdi>` },
          { key: "id", title: "Id", width: "8rem", cell: (one) => html`<${Id} id=${one.id} />` },
        ]}
      />
      ${selected
        ? html`<section class="card message-pane" aria-label="Message">
            <header><h2>${formatTime(selected.published_at)}</h2><${Button} small icon="bookmark" onClick=${() => setMoves(true)} title="Moves a reader's cursor behind this message">Move a cursor here<//><${Button} small kind="quiet" icon="x" label="Close the message" onClick=${() => setSelected(null)} /></header>
            <div class="inside">
              <dl class="facts"><dt>Id</dt><dd><${Id} id=${selected.id} short=${0} /></dd><dt>Published</dt><dd><${Time} at=${selected.published_at} relative /></dd><dt>Record</dt><dd><${RecordLink} position=${selected.position} label=${selected.position} /></dd><dt>Cursor</dt><dd class="cursor-text"><code>${selected.cursor}</code><${CopyButton} text=${selected.cursor} label="Copy the cursor" /></dd></dl>
              <${Json} key=${selected.id} value=${selected.value} open=${3} label="The message" />
            </div>
          </section>`
        : null}
    </div>
    ${moves && selected ? html`<${MoveDialog} row=${row} scopeId=${scopeId} tenant=${tenant} readers=${queue?.readers ?? []} cursor=${selected.cursor} what=${`behind the message of ${formatTime(selected.published_at)}`} onClose=${() => setMoves(false)} onDone=${onMoved} />` : null}
  `;
}

/** Puts messages that are published now in front of the list; returns how the stream is. */
function useFollowed(name, { scopeId, tenant, list, isOn }) {
  const [state, setState] = useState("");
  const isRead = list.rows.length > 0 || list.isComplete;
  const change = useRef(list.replaceRows);
  change.current = list.replaceRows;
  useEffect(() => {
    if (!isOn || !isRead) return undefined;
    const query = { from_cursor: list.rows[0]?.cursor ?? OLDEST, ...(scopeId ? { scope_id: scopeId } : {}), ...(tenant ? { tenant } : {}) };
    const stream = follow(channels.streamPath(name, query), {
      whileVisible: true,
      onState: setState,
      onFrames: (frames) => {
        const incoming = frames.filter((frame) => frame.event === "message").map((frame) => frame.data);
        if (incoming.length) change.current((rows) => withNewer(rows, incoming));
      },
    });
    return () => stream.stop();
  }, [name, scopeId, tenant, isOn, isRead]);
  return state;
}
