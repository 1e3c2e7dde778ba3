// Forms that publish a message to one channel, or the same to several.
import { html, useRef, useState } from "../../ui.js";
import { channels, newKey } from "../../api.js";
import { Button, Checkbox, Field, Id } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { ErrorState } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { printJson } from "../../exact_json.js";
import { useAction } from "../../resource.js";
import { may } from "../../session.js";
import { toRfc3339 } from "../../values.js";
import { BROADCAST_MAX, hasQueues, parsePayload, publisherOf } from "./model.js";

/** What both forms ask for. `change` gets the changed fields. @param {{form: any, change: (changes: any) => void, scope?: string, knownIds?: string[]}} properties */
function MessageFields({ form, change, scope, knownIds = [] }) {
  const parsed = parsePayload(form.text);
  return html`
    ${scope ? html`<${Field} label=${scope === "agent" ? "Agent" : "User"} required value=${form.scope_id} onInput=${(scope_id) => change({ scope_id })} list=${knownIds} hint=${`Whose queue it goes to: the channel has one for each ${scope}.`} />` : null}
    <${Field} label="Message" rows=${7} code value=${form.text} onInput=${(text) => change({ text })} error=${form.text && parsed.problem ? parsed.problem : ""} hint="Any JSON value but null, at most 64 KiB." />
    ${form.text.trim() && parsed.problem ? html`<p><${Button} small onClick=${() => change({ text: printJson(form.text) })}>Send it as a text<//></p>` : null}
    <div class="fields two">
      <${Field} label="Visible from" type="datetime-local" value=${form.at} onInput=${(at) => change({ at })} hint="Empty: at once. At most 30 days ahead, in your time zone." />
      <${Field} label="Kept for" value=${form.ttl} onInput=${(ttl) => change({ ttl })} placeholder="as declared" hint="Seconds, or 90s, 12h, 7d." />
    </div>`;
}

const EMPTY = { text: "", scope_id: "", at: "", ttl: "" };

/** @param {any} form @returns {Record<string, any>} */
function bodyOf(form) {
  const ttl = form.ttl.trim();
  return {
    payload: parsePayload(form.text).value,
    ...(form.scope_id ? { scope_id: form.scope_id } : {}),
    ...(form.at ? { deliver_at: toRfc3339(form.at) } : {}),
    ...(ttl ? { ttl: /^\d+$/.test(ttl) ? Number(ttl) : ttl } : {}),
  };
}

/** A key of one message: the same when a publish is repeated after a failure, so that it is published once. */
function useMessageKey() {
  const key = useRef({ text: "", key: "" });
  return (body) => {
    const text = printJson(body);
    if (key.current.text !== text) key.current = { text, key: newKey() };
    return { headers: { "idempotency-key": key.current.key }, done: () => (key.current = { text: "", key: "" }) };
  };
}

/** @param {{row: any, scopeId: string, knownIds: string[], tenant: string, onClose: () => void, onDone: () => void}} properties */
export function PublishDialog({ row, scopeId, knownIds, tenant, onClose, onDone }) {
  const [form, setForm] = useState({ ...EMPTY, scope_id: scopeId });
  const action = useAction();
  const keyed = useMessageKey();
  const needsId = hasQueues(row.scope);
  const isReady = parsePayload(form.text).problem === undefined && (!needsId || form.scope_id.trim());
  const send = async () => {
    const body = bodyOf(form);
    const { headers, done } = keyed(body);
    const answer = await action.run(() => channels.publish(row.name, body, { tenant }, { headers }));
    if (!answer) return;
    done();
    const dropped = answer.dropped_oldest ? ` ${answer.dropped_oldest} of the oldest were dropped.` : "";
    toast(answer.visible_at ? html`Published; visible at <${Time} at=${answer.visible_at} />.${dropped}` : `Published.${dropped}`);
    onClose();
    onDone();
  };
  return html`<${Dialog} title=${`Publish to ${row.name}`} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="send" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${send}>Publish<//>`}>
    <${MessageFields} form=${form} change=${(changed) => setForm({ ...form, ...changed })} scope=${needsId ? row.scope : ""} knownIds=${knownIds} />
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}

/** @param {{rows: any[], tenant: string, onClose: () => void}} properties */
export function BroadcastDialog({ rows, tenant, onClose }) {
  const [form, setForm] = useState(EMPTY);
  const [chosen, setChosen] = useState(/** @type {Set<string>} */ (new Set()));
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const action = useAction();
  const keyed = useMessageKey();
  const open = rows.filter((row) => row.source !== "orphan" && (publisherOf(row) === "anyone allowed" || may("substrate:admin")));
  const shown = open.filter((row) => chosen.has(row.name) || row.name.toLowerCase().includes(text.trim().toLowerCase()));
  const needed = [...new Set(open.filter((row) => chosen.has(row.name) && hasQueues(row.scope)).map((row) => row.scope))];
  const problem = chosen.size > BROADCAST_MAX ? `${chosen.size} are chosen, at most ${BROADCAST_MAX} are taken.` : needed.length > 1 ? "A channel of users and one of agents cannot be taken together: both need a name, and there is one." : "";
  const isReady = chosen.size > 0 && !problem && parsePayload(form.text).problem === undefined && (!needed.length || form.scope_id.trim());
  const send = async () => {
    const body = { channels: [...chosen], ...bodyOf(needed.length ? form : { ...form, scope_id: "" }) };
    const { headers, done } = keyed(body);
    const got = await action.run(() => channels.broadcast(body, { tenant }, { headers }));
    if (!got) return;
    done();
    setAnswer(got);
  };
  const toggle = (name) => (isChosen) => {
    const next = new Set(chosen);
    if (isChosen) next.add(name);
    else next.delete(name);
    setChosen(next);
  };
  if (answer) {
    return html`<${Dialog} title="Published" onClose=${onClose} actions=${html`<${Button} kind="primary" onClick=${onClose}>Close<//>`}>
      <p>${answer.published} published${answer.failed ? `, ${answer.failed} failed` : ""}.</p>
      <${PlainTable} label="What became of it" rows=${answer.results} rowKey=${(one) => one.channel} columns=${[
        { key: "channel", title: "Channel", cell: (one) => html`<bdi>${one.channel}</bdi>` },
        { key: "message", title: "Message", cell: (one) => (one.message_id ? html`<${Id} id=${one.message_id} />` : html`<span class="bad">${one.error ?? one.message ?? "not published"}</span>`) },
      ]} />
    <//>`;
  }
  return html`<${Dialog} title="Publish to several channels" onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="send" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${send}>Publish to ${chosen.size}<//>`}>
    <p class="hint">Either all of them are allowed, or none gets it.</p>
    <${Field} label="Channels" type="search" value=${text} onInput=${setText} placeholder="Search" error=${problem} />
    <div class="channel-choices" role="group" aria-label="Channels">
      ${shown.slice(0, 200).map((row) => html`<${Checkbox} key=${row.name} label=${html`<bdi>${row.name}</bdi>`} hint=${row.scope} checked=${chosen.has(row.name)} onChange=${toggle(row.name)} />`)}
      ${shown.length ? null : html`<p class="hint">No channel to publish to has this in its name.</p>`}
    </div>
    <${MessageFields} form=${form} change=${(changed) => setForm({ ...form, ...changed })} scope=${needed[0] ?? ""} />
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
