// Repair of an aggregate: what is known of it, and an event that restates it. Nothing is deleted.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Chip, Field } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Json } from "../../components/json.js";
import { Resource } from "../../components/states.js";
import { formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { parseJson, printJson } from "../../exact_json.js";
import { useResource } from "../../resource.js";
import { link, setQuery } from "../../router.js";
import { parsePosition } from "./model.js";

/** @param {{aggregate: string, onRepaired: () => void}} properties aggregate: full id, "" for none yet */
export function Repair({ aggregate, onRepaired }) {
  const [id, setId] = useState(aggregate);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (aggregate) box.current?.scrollIntoView({ block: "nearest" });
  }, []);
  const look = (event) => {
    event.preventDefault();
    if (id.trim()) setQuery({ aggregate: id.trim() });
  };
  return html`<section class="card" aria-labelledby="repair-title" ref=${box}>
    <header><h2 id="repair-title">Aggregate</h2></header>
    <div class="inside fields">
      <form class="actions" onSubmit=${look}><div class="grow"><${Field} label="Full id" inline code value=${id} onInput=${setId} placeholder="family:tenant/name" /></div><${Button} type="submit" icon="search" isDisabled=${!id.trim()}>Show<//>
        ${aggregate ? html`<${Button} kind="quiet" icon="x" onClick=${() => setQuery({ aggregate: null })}>Close<//>` : null}</form>
      ${aggregate ? html`<${Known} aggregate=${aggregate} onRepaired=${onRepaired} />` : html`<p class="hint">Shows its state as far as it can be computed, and why it is quarantined if it is.</p>`}
    </div>
  </section>`;
}

function Known({ aggregate, onRepaired }) {
  const known = useResource((signal) => operations.aggregate(aggregate, { signal }), [aggregate]);
  const [isAsked, setAsked] = useState(false);
  const [isEdited, setEdited] = useState(false);
  const [text, setText] = useState("");
  return html`<${Resource} of=${known} rows=${3}>${(data) => {
    const stated = isEdited ? parse(text) : { state: undefined, problem: "" };
    return html`
      <p>${data.quarantine ? html`<${Chip} tone="bad" icon="octagon-x">quarantined<//> <bdi>${data.quarantine}</bdi>` : html`<${Chip} tone="good" icon="circle-check">not quarantined<//> It needs no repair.`} <span class="dim">seq ${formatCount(data.seq)}</span></p>
      ${data.state === null ? html`<p class="note warn">Its state is not known: a repair has to state it.</p>` : html`<${Json} value=${data.state} open=${1} label="State" />`}
      ${data.quarantine
        ? html`${isEdited ? html`<${Field} label="State" rows=${10} code value=${text} onInput=${setText} error=${stated.problem} hint="What the aggregate is from now on, in the form above." />` : null}
            <div class="actions">
              <${Button} kind="primary" icon="wrench" isDisabled=${isEdited ? Boolean(stated.problem) : data.state === null} onClick=${() => setAsked(true)}>${isEdited ? "Repair with this state" : "Repair with the last state"}<//>
              <${Button} onClick=${() => (setEdited(!isEdited), setText(printJson(data.state ?? {}, null, 2)))}>${isEdited ? "Leave the state as it is" : "Change the state first"}<//>
            </div>`
        : null}
      ${isAsked
        ? html`<${Confirm} title="Repair this aggregate?" confirm="Repair" needsReason onClose=${() => setAsked(false)} onConfirm=${async (reason) => {
            const { position } = await operations.repair({ aggregate, reason, ...(isEdited ? { state: stated.state } : {}) });
            const place = parsePosition(position);
            toast(html`Restated${place ? html` by <a href=${link(`/log/${place.topic}/${place.partition}`, { from: place.offset })}>${position}</a>` : ""}.`);
            setEdited(false);
            known.reload();
            onRepaired();
          }}><p>An event states <code>${aggregate}</code> as ${isEdited ? "you wrote it" : "it was after the last record that could be understood"}, and its quarantine ends. Nothing is deleted; what the broken records said does not count.</p><//>`
        : null}`;
  }}<//>`;
}

/** @param {string} text */
function parse(text) {
  try {
    const state = parseJson(text);
    return typeof state === "object" && state !== null && !Array.isArray(state) ? { state, problem: "" } : { state: undefined, problem: "Give a JSON object." };
  } catch (error) {
    return { state: undefined, problem: `This is not JSON: ${error.message}` };
  }
}
