// Repair of a quarantined aggregate: its state as far as it can be folded, and a new state that ends the quarantine.
import { html, useEffect, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Chip, Field } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Json, safeText } from "../../components/json.js";
import { Resource } from "../../components/states.js";
import { toast } from "../../components/toast.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";

export function Repair() {
  const aggregate = here.value.query.get("aggregate") ?? "";
  const [text, setText] = useState(aggregate);
  useEffect(() => setText(aggregate), [aggregate]);
  return html`<section class="card"><header><h2>Repair of an aggregate</h2></header>
    <div class="inside fields">
      <p class="hint">An aggregate whose events cannot be folded is quarantined: it takes no commands until its state is stated anew. Quarantined runs are released on <a href=${link("/runs", { waits: "quarantined" })}>their own page</a>.</p>
      <form class="bar" onSubmit=${(event) => (event.preventDefault(), setQuery({ aggregate: text.trim() }))}>
        <${Field} label="Aggregate" inline code value=${text} onInput=${setText} placeholder="channel:acme/alerts" />
        <${Button} type="submit" isDisabled=${!text.trim()}>Show<//>
      </form>
      ${aggregate ? html`<${Aggregate} key=${aggregate} aggregate=${aggregate} />` : null}
    </div>
  </section>`;
}

function Aggregate({ aggregate }) {
  const view = useResource((signal) => operations.aggregate(aggregate, { signal }), [aggregate]);
  return html`<${Resource} of=${view} rows=${3}>${(data) => html`<${View} key=${data.seq} view=${data} onDone=${view.reload} />`}<//>`;
}

function View({ view, onDone }) {
  const [text, setText] = useState(safeText(view.state));
  const [isAsked, setAsked] = useState(false);
  const { state, problem } = parsed(text);
  const isSame = !problem && safeText(state) === safeText(view.state);
  const repair = async (reason) => {
    await operations.repair({ aggregate: view.aggregate, ...(isSame ? {} : { state }), reason });
    toast("The aggregate is restated and takes commands again.");
    onDone();
  };
  return html`<div class="fields">
    <p>${view.quarantine ? html`<${Chip} tone="bad" icon="octagon-x">quarantined<//> <bdi class="wraps">${view.quarantine}</bdi>` : html`<${Chip} tone="good" icon="circle-check">in order<//>`} <span class="dim">after ${view.seq} ${view.seq === 1 ? "event" : "events"}</span></p>
    ${view.quarantine
      ? html`<${Field} label="Its state" rows=${12} code value=${text} onInput=${setText} error=${problem} hint="The last state that could be folded. Change it where it is wrong; as it is, the aggregate continues from it." />
          <p class="actions"><${Button} kind="danger" isDisabled=${Boolean(problem)} onClick=${() => setAsked(true)}>Restate…<//></p>`
      : html`<div class="card-like"><${Json} value=${view.state} label="State" /></div>`}
    ${isAsked ? html`<${Confirm} title="Restate the aggregate" confirm="Restate" danger typed=${view.aggregate} needsReason onConfirm=${repair} onClose=${() => setAsked(false)}><p>${isSame ? "It continues from the last state that could be folded." : "It continues from the state that you wrote."} Events after that state have no effect any more; they stay in the log.</p><//>` : null}
  </div>`;
}

/** @param {string} text */
function parsed(text) {
  try {
    const state = JSON.parse(text);
    if (state === null || typeof state !== "object" || Array.isArray(state)) return { state: null, problem: "A state is an object in JSON." };
    return { state, problem: "" };
  } catch (error) {
    return { state: null, problem: `This is no JSON: ${error instanceof Error ? error.message : error}` };
  }
}
