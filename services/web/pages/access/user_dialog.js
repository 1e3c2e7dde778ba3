// The form that registers a user, or changes one.
import { html, useState } from "../../ui.js";
import { access } from "../../api.js";
import { Button, Field } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { ErrorState } from "../../components/states.js";
import { useAction } from "../../resource.js";
import { MODES, bodyOf } from "./model.js";

/** @param {{tenant: string, subject?: string, user?: {display_name?: string, access_mode?: string}, onClose: () => void, onDone: (user: Api.RegisteredUser) => void}} properties subject: of a user that has run something; user: a registered one, which is changed */
export function UserDialog({ tenant, subject = "", user, onClose, onDone }) {
  const [form, setForm] = useState({ subject, display_name: user?.display_name ?? "", access_mode: user?.access_mode ?? "tenant" });
  const action = useAction();
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const save = async () => {
    if (!form.subject.trim()) return;
    const { subject: named, ...changes } = form;
    const answer = await action.run(() => (user ? access.change(named, changes, { tenant }) : access.register(bodyOf(form), { tenant })));
    if (answer === false) return;
    onClose();
    onDone(answer);
  };
  return html`<${Dialog} title=${user ? `Change ${subject}` : "Register a user"} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} isDisabled=${!form.subject.trim()} onClick=${save}>${user ? "Change" : "Register"}<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), save())}>
      ${subject ? null : html`<${Field} label="Subject" value=${form.subject} onInput=${set("subject")} required placeholder="ada" hint="1 to 64 letters, digits, _ and -. It does not change." />`}
      <${Field} label="Name" value=${form.display_name} onInput=${set("display_name")} placeholder="Ada Lovelace" hint="For people; encrypted where content is." />
      <${Field} label="Access" value=${form.access_mode} onInput=${set("access_mode")} options=${Object.entries(MODES).map(([value, title]) => ({ value, title }))} hint=${user ? "It holds for the tokens that there are, too." : undefined} />
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
