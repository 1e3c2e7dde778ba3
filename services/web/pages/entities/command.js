// A command of a family as a form, made from the schema of its body; the server checks it, and its words are shown.
import { html, useState } from "../../ui.js";
import { entities } from "../../api.js";
import { Button, Checkbox, Field } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { Json } from "../../components/json.js";
import { ErrorState } from "../../components/states.js";
import { toast } from "../../components/toast.js";
import { useAction } from "../../resource.js";
import { bodyOf, initialValues } from "./schema.js";

/** @param {{command: import("./schema.js").Command, tenant: string, id?: string, onDone: () => void, onClose: () => void}} properties id: of the aggregate that is looked at; put into the field that names it */
export function CommandDialog({ command, tenant, id = "", onDone, onClose }) {
  const [values, setValues] = useState(() => begun(command, id));
  const [problems, setProblems] = useState(/** @type {Record<string, string>} */ ({}));
  const [reply, setReply] = useState(/** @type {any} */ (null));
  const action = useAction();
  const name = command.verb.replaceAll("_", " ");
  const send = async () => {
    const made = bodyOf(command.fields, values);
    setProblems(made.problems);
    if (Object.keys(made.problems).length) return;
    setReply(null);
    const answer = await action.run(() => entities.command(command.path, made.body, { tenant }));
    if (!answer) return;
    onDone();
    toast(`${name} is done.`);
    if (typeof answer === "object" && Object.keys(answer).length) setReply(answer);
    else onClose();
  };
  const set = (field, value) => setValues({ ...values, [field]: value });
  return html`<${Dialog} title=${name} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>${reply ? "Close" : "Leave it"}<//><${Button} kind="primary" isBusy=${action.isBusy} onClick=${send}>${reply ? "Send again" : "Send"}<//>`}>
    <p>${command.summary}</p>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), send())}>
      ${command.fields.map((field) => html`<${Control} key=${field.name} field=${field} value=${values[field.name]} error=${problems[field.name]} onChange=${(value) => set(field.name, value)} />`)}
      ${command.fields.length ? null : html`<p class="dim">It takes no fields.</p>`}
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    ${reply ? html`<div role="status"><h3>What it did</h3><${Json} value=${reply} open=${3} label="Reply" /></div>` : null}
  <//>`;
}

function Control({ field, value, error, onChange }) {
  const { title, hint, isRequired } = field;
  if (field.kind === "flag") return html`<${Checkbox} label=${title} checked=${value} onChange=${onChange} hint=${hint} />`;
  const shared = { label: title, value, onInput: onChange, hint, error, required: isRequired };
  if (field.kind === "choice") return html`<${Field} ...${shared} options=${isRequired ? field.options : [{ value: "", title: "not set" }, ...field.options]} />`;
  if (field.kind === "list") return html`<${Field} ...${shared} rows=${3} hint=${`${hint} One on each line.`.trim()} />`;
  if (field.kind === "json") return html`<${Field} ...${shared} rows=${5} code hint=${`${hint} JSON.`.trim()} />`;
  return html`<${Field} ...${shared} type=${field.kind === "text" ? "text" : "number"} step=${field.kind === "whole" ? 1 : "any"} />`;
}

function begun(command, id) {
  const values = initialValues(command.fields);
  for (const field of command.fields) if (field.kind === "choice" && field.isRequired && !values[field.name]) values[field.name] = field.options[0];
  const named = command.fields.find((field) => field.kind === "text" && field.isRequired);
  if (id && named) values[named.name] = id;
  return values;
}
