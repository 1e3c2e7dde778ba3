// Forms that declare a channel and change one.
import { html, useState } from "../../ui.js";
import { channels } from "../../api.js";
import { Button, Field } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { ErrorState } from "../../components/states.js";
import { toast } from "../../components/toast.js";
import { useAction } from "../../resource.js";
import { may } from "../../session.js";
import { SCOPES, declarationBody, formatKept } from "./model.js";

const NAME = /^[A-Za-z0-9_-]{1,128}$/;

/** @param {{row?: any, name?: string, scope?: string, tenant: string, onClose: () => void, onDone: (row: any) => void}} properties row: the channel that is changed; none: a new one */
export function DeclareDialog({ row = null, name = "", scope = "tenant", tenant, onClose, onDone }) {
  const [form, setForm] = useState({ name, scope, description: row?.description ?? "", semantic: row?.semantic ?? "queue", default_ttl: row?.default_ttl ? String(row.default_ttl) : "", max_messages: row?.max_messages ? String(row.max_messages) : "" });
  const action = useAction();
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const wrongName = !row && form.name && !NAME.test(form.name.trim()) ? "1 to 128 letters, digits, _ and -." : "";
  const save = async () => {
    const body = declarationBody(form, row);
    if (row && !Object.keys(body).length) return onClose();
    const made = await action.run(() => (row ? channels.update(row.name, body, { tenant }) : channels.create(body, { tenant })));
    if (!made) return;
    toast(row ? `${row.name} is changed.` : `${made.name} is declared.`);
    onClose();
    onDone(made);
  };
  const scopes = Object.keys(SCOPES).filter((one) => one !== "global" || may("substrate:admin"));
  return html`<${Dialog} title=${row ? `Change ${row.name}` : "New channel"} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="save" isBusy=${action.isBusy} isDisabled=${!row && (!form.name.trim() || Boolean(wrongName))} onClick=${save}>${row ? "Save" : "Declare"}<//>`}>
    ${row
      ? null
      : html`<div class="fields two">
          <${Field} label="Name" required autofocus value=${form.name} onInput=${set("name")} error=${wrongName} placeholder="orders" />
          <${Field} label="Scope" value=${form.scope} onInput=${set("scope")} options=${scopes.map((one) => ({ value: one, title: `${one}: ${SCOPES[one]}` }))} hint="It stays as it is." />
        </div>`}
    <${Field} label="Description" value=${form.description} onInput=${set("description")} placeholder="What it is for" />
    <div class="fields two">
      <${Field} label="Messages are kept for" value=${form.default_ttl} onInput=${set("default_ttl")} placeholder="30 d" hint=${`Seconds, or a duration such as 90s, 12h, 7d${row?.default_ttl ? ` (now ${formatKept(row.default_ttl)})` : ""}. Empty: 30 days.`} />
      <${Field} label="Messages of a queue" type="number" min="0" value=${form.max_messages} onInput=${set("max_messages")} placeholder="any number" hint="The oldest is dropped above it." />
      <${Field} label="Used as" value=${form.semantic} onInput=${set("semantic")} options=${["queue", "topic", "broadcast"]} hint="A word for people: all three work alike." />
    </div>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
