// Forms that set a key, and that drop a scope.
import { html, useRef, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, Checkbox, Field } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { ErrorState, Loading } from "../../components/states.js";
import { formatBytes, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { printJson } from "../../exact_json.js";
import { useAction, useResource } from "../../resource.js";
import { SCOPES, nameOf, parseValue } from "./model.js";

/**
 * @param {{place: {scope: string, id: string} | null, entryKey?: string, entry?: any, tenant: string, onReload?: () => void, onClose: () => void, onDone: (made: {scope: string, id: string, key: string}) => void}} properties
 *   entry: as it is now; it is only overwritten as long as nobody else has changed it. Without one the key must be new.
 */
export function EntryDialog({ place, entryKey = "", entry = null, tenant, onReload, onClose, onDone }) {
  const [form, setForm] = useState({ scope: place?.scope ?? "user", id: place?.id ?? "", key: entryKey, text: entry ? printJson(entry.value, null, 2) : "", ttl: "", embed: entry?.embed ?? false });
  const [overwrites, setOverwrites] = useState(false);
  // The revision that the person saw when the form opened.
  const revision = useRef(entry?.revision ?? 0);
  const action = useAction();
  const change = (changes) => setForm({ ...form, ...changes });
  const parsed = parseValue(form.text);
  const ttl = form.ttl.trim();
  const isTtl = /^\d*$/.test(ttl);
  const needsId = form.scope !== "tenant";
  const isReady = parsed.problem === undefined && isTtl && form.key && (!needsId || form.id.trim());
  const isConflict = action.error?.code === "revision_conflict";
  const send = async () => {
    const id = needsId ? form.id.trim() : "";
    const body = { value: parsed.value, embed: form.embed, ...(Number(ttl) ? { ttl_seconds: Number(ttl) } : {}), ...(overwrites ? {} : { if_revision: revision.current }) };
    const answer = await action.run(() => memory.put(form.scope, id, form.key, body, { tenant }));
    if (!answer) return;
    toast(html`<bdi>${form.key}</bdi> is set${form.embed ? (answer.embedded ? " and has its vector" : `; it has no vector yet: ${answer.embed_warning ?? "it is being made"}`) : ""}.`);
    if (answer.usage_warning) toast(answer.usage_warning, "bad");
    onDone({ scope: form.scope, id, key: form.key });
    onClose();
  };
  return html`<${Dialog} title=${entry ? `Edit ${entryKey}` : "New entry"} wide onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${send}>${entry ? "Save" : "Set it"}<//>`}>
    ${entryKey ? null : html`
      <div class="fields two">
        <${Field} label="Whose memory" value=${form.scope} onInput=${(scope) => change({ scope, id: "" })} options=${["user", "agent", "tenant"].map((scope) => ({ value: scope, title: scope === "tenant" ? "the tenant's" : `of ${scope === "agent" ? "an agent" : "a user"}` }))} />
        ${needsId ? html`<${Field} label=${SCOPES[form.scope].id} value=${form.id} onInput=${(id) => change({ id })} required />` : null}
      </div>
      <${Field} label="Key" value=${form.key} onInput=${(key) => change({ key })} required code hint="At most 512 characters; slashes make groups, such as recipes/soup." />`}
    <${Field} label="Value" rows=${12} code value=${form.text} onInput=${(text) => change({ text })} error=${form.text && parsed.problem ? parsed.problem : ""} hint="Any JSON value, at most 64 KiB." required />
    ${form.text.trim() && parsed.problem ? html`<p><${Button} small onClick=${() => change({ text: printJson(form.text) })}>Make it a text<//></p>` : null}
    <${Field} label="Expires after (seconds)" value=${form.ttl} onInput=${(value) => change({ ttl: value })} error=${isTtl ? "" : "Expected a whole number of seconds."} hint=${entry ? (entry.expires_at ? "Empty: it expires when it does now." : "Empty: it never expires, as now.") : "Empty: it never expires."} />
    <${Checkbox} label="Find it by its meaning" hint="Its value gets a vector, if an embedder is configured." checked=${form.embed} onChange=${(embed) => change({ embed })} />
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    ${isConflict ? html`<${Checkbox} label="Overwrite what is there now" checked=${overwrites} onChange=${(checked) => (setOverwrites(checked), onReload?.())} />` : null}
  <//>`;
}

/** @param {{place: {scope: string, id: string}, tenant: string, onClose: () => void, onDone: () => void}} properties */
export function DropDialog({ place, tenant, onClose, onDone }) {
  const dry = useResource((signal) => memory.drop(place.scope, place.id, { dry_run: true, tenant }, { signal }), [place.scope, place.id, tenant]);
  const drop = async (reason) => {
    const answer = await memory.drop(place.scope, place.id, { dry_run: false, reason, tenant });
    toast(`${formatCount(answer.keys)} ${answer.keys === 1 ? "key" : "keys"} of ${nameOf(place.scope, place.id)} ${answer.keys === 1 ? "is" : "are"} deleted.`);
    onDone();
  };
  if (!dry.data) return html`<${Dialog} title="Drop the scope" onClose=${onClose}>${dry.error ? html`<${ErrorState} error=${dry.error} onRetry=${dry.reload} compact />` : html`<${Loading} label="Counting its keys" />`}<//>`;
  return html`<${Confirm} title=${`Drop ${nameOf(place.scope, place.id)}?`} confirm=${`Delete ${formatCount(dry.data.keys)} keys`} danger typed=${place.id || place.scope} needsReason onClose=${onClose} onConfirm=${drop}>
    <p>All ${formatCount(dry.data.keys)} keys with ${formatBytes(dry.data.bytes)} are deleted, and agents find none of them any more. Their changes of the last 30 days stay readable by key; the SQL database of the scope is not touched.</p>
  <//>`;
}
