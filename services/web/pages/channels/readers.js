// The readers of a queue: where the cursor of each is, and moving one forward.
import { html, useState } from "../../ui.js";
import { channels } from "../../api.js";
import { Button, Chip, CopyButton, Field } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";

const SHARED = "the shared cursor";
const named = (reader) => reader || SHARED;

/** @param {{row: any, scopeId: string, tenant: string, queue: any}} properties queue: the resource of the queue's readers */
export function Readers({ row, scopeId, tenant, queue }) {
  const [moved, setMoved] = useState(/** @type {string | null} */ (null));
  return html`<div class="pane-scrolls">
    <p class="hint">Readers without a name share one cursor: each message goes to one of them. A named reader has a cursor of its own, and sees every message.</p>
    <${Resource} of=${queue}>${(data) => html`<${PlainTable}
      label="Readers"
      rows=${data?.readers ?? []}
      rowKey=${(one) => one.reader}
      empty=${html`<${Empty} icon="bookmark" title="Nothing was read yet" command=${`loomlog channels subscribe ${row.name}`}><p>A reader has a cursor once it has taken a message.</p><//>`}
      columns=${[
        { key: "reader", title: "Reader", sort: (one) => one.reader, cell: (one) => (one.reader ? html`<bdi>${one.reader}</bdi>` : html`<span class="soft">shared by those without a name</span>`) },
        { key: "behind", title: "Behind", align: "right", sort: (one) => one.behind, cell: (one) => (one.behind ? formatCount(one.behind) : html`<${Chip} tone="good">at the end<//>`) },
        { key: "leased", title: "Leased", align: "right", cell: (one) => formatCount(one.leased) },
        { key: "waiting", title: "Waiting calls", align: "right", cell: (one) => formatCount(one.waiting) },
        { key: "cursor", title: "Cursor", cell: (one) => (one.cursor ? html`<span class="id" title=${one.cursor}><code>…${one.cursor.slice(-14)}</code><${CopyButton} text=${one.cursor} label="Copy the cursor" /></span>` : html`<span class="dim" title="The message that it is behind is not kept any more">of a message that is gone</span>`) },
        { key: "move", title: html`<span class="spoken">Move</span>`, align: "right", cell: (one) => (one.behind ? html`<${Button} small icon="skip-forward" onClick=${() => setMoved(one.reader)}>Move forward<//>` : null) },
      ]}
    />`}<//>
    ${moved === null ? null : html`<${MoveDialog} row=${row} scopeId=${scopeId} tenant=${tenant} readers=${queue.data?.readers ?? []} reader=${moved} onClose=${() => setMoved(null)} onDone=${queue.reload} />`}
  </div>`;
}

/**
 * Moves a cursor forward. `cursor` is where it goes; without it, a person gives one, or the end of the queue is meant.
 * @param {{row: any, scopeId: string, tenant: string, readers: any[], reader?: string, cursor?: string, what?: string, onClose: () => void, onDone: () => void}} properties
 */
export function MoveDialog({ row, scopeId, tenant, readers, reader = "", cursor = "", what = "", onClose, onDone }) {
  const [name, setName] = useState(reader);
  const [text, setText] = useState("");
  const move = async () => {
    let to = cursor || text.trim();
    if (!to) {
      const { messages } = await channels.peek(row.name, { order: "newest", max_messages: 1, scope_id: scopeId, tenant });
      if (!messages[0]?.cursor) throw new Error("There is no message to move it behind.");
      to = messages[0].cursor;
    }
    await channels.ack(row.name, { cursor: to, ...(name.trim() ? { reader: name.trim() } : {}), ...(scopeId ? { scope_id: scopeId } : {}) }, { tenant });
    toast(`${named(name.trim())} was moved.`);
    onDone();
  };
  return html`<${Confirm} title="Move this cursor forward?" confirm="Move" onClose=${onClose} onConfirm=${move}>
    <p>What lies between is not read any more by this reader; the messages stay for others. A cursor never moves back${what ? html`. It goes ${what}` : null}.</p>
    <${Field} label="Reader" value=${name} onInput=${setName} placeholder=${SHARED} list=${readers.map((one) => one.reader).filter(Boolean)} hint="Empty: the shared cursor. A name that is new makes a reader of its own." />
    ${cursor ? null : html`<${Field} label="Behind the message with the cursor" code value=${text} onInput=${setText} placeholder="the end of the queue" hint="Empty: the end, so that only new messages are read." />`}
  <//>`;
}
