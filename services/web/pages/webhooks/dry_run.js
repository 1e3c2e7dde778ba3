// What would become of a request: its proof and body are checked, and the run's input is shown. Nothing happens.
import { html, useState } from "../../ui.js";
import { webhooks } from "../../api.js";
import { Button, Chip, Field } from "../../components/controls.js";
import { Json, LongText } from "../../components/json.js";
import { ErrorState } from "../../components/states.js";
import { useAction } from "../../resource.js";
import { parseHeaders, proofHeaders, proofOf, verdictOf } from "./model.js";

const BODY = '{\n  "goal": "look at this"\n}';

/** @param {{address: string, definition: any}} properties */
export function DryRun({ address, definition }) {
  const [body, setBody] = useState(BODY);
  const [text, setText] = useState("");
  const [secret, setSecret] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const action = useAction();
  if (definition === undefined) return html`<p class="hint">Reading…</p>`;
  const proof = proofOf(definition?.auth);
  const isOwnToken = proof.kind === "bearer" && /^authorization$/i.test(proof.header);
  const canProve = (proof.kind === "hmac" && Boolean(globalThis.crypto?.subtle)) || (proof.kind === "bearer" && !isOwnToken);
  const { headers, problem } = parseHeaders(text);
  const run = async () => {
    const got = await action.run(async () => webhooks.test(address, body, { "content-type": "application/json", ...headers, ...(secret && canProve ? await proofHeaders(proof, secret, body, Date.now()) : {}) }));
    setAnswer(got || null);
  };
  return html`<div class="halves">
    <form class="card" aria-label="Request" onSubmit=${(event) => (event.preventDefault(), problem || run())}>
      <header><h2>Request</h2></header>
      <div class="inside fields">
        <${Field} label="Body" rows=${10} code value=${body} onInput=${setBody} />
        ${canProve
          ? html`<${Field} label=${proof.kind === "hmac" ? "Secret to sign it with" : "Token"} type="password" value=${secret} onInput=${setSecret} hint=${proof.kind === "hmac" ? html`Stays in this page: only the signature is sent, as <code>${proof.header}</code>. Empty: the request is not signed, or a header below has the signature.` : html`Sent as <code>${proof.header}</code>.`} />`
          : isOwnToken
            ? html`<p class="note">This webhook takes its token from <code>Authorization</code>, where this page's own token goes: the proof cannot be tried from here. Use <code>loomlog webhooks test ${address} body.json</code>.</p>`
            : proof.kind === "hmac"
              ? html`<p class="note">A browser signs only on a page with https or on localhost. Make the signature elsewhere and give it as a header.</p>`
              : null}
        <${Field} label="Headers" rows=${3} code value=${text} onInput=${setText} error=${problem} placeholder=${definition?.auth?.delivery_id_header ? `${definition.auth.delivery_id_header}: 72d3162e` : "X-Event: opened"} hint="One a line, Name: value." />
        ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
      </div>
      <footer class="form-actions"><${Button} kind="primary" type="submit" icon="play" isBusy=${action.isBusy} isDisabled=${Boolean(problem)}>Try it<//></footer>
    </form>
    <section class="card" aria-label="Result" aria-live="polite">
      <header><h2>Result</h2>${answer ? html`<${Chip} tone=${answer.would_accept ? "good" : "bad"}>${answer.would_accept ? "would be accepted" : verdictOf(answer.verdict)[1]}<//>` : null}</header>
      <div class="inside">${answer ? html`<${Outcome} answer=${answer} />` : html`<p class="hint">The proof, the body and the mapping are checked. Nothing starts or is published; the rate and repeated ids are not looked at.</p>`}</div>
    </section>
  </div>`;
}

function Outcome({ answer }) {
  const [, , why] = verdictOf(answer.verdict);
  const preview = answer.run_input_preview;
  const metadata = preview?.run_metadata ?? {};
  return html`<dl class="facts">
    <dt>Verdict</dt><dd><code>${answer.verdict}</code> ${answer.would_accept ? null : why}</dd>
    ${answer.detail ? html`<dt>Detail</dt><dd><bdi>${answer.detail}</bdi></dd>` : null}
    ${answer.delivery_id ? html`<dt>Delivery id</dt><dd><code>${answer.delivery_id}</code></dd>` : null}
    ${answer.channel ? html`<dt>Channel</dt><dd><bdi>${answer.channel}</bdi>: the body as it is</dd>` : null}
    ${preview
      ? html`<dt>Agent</dt><dd><bdi>${preview.agent}</bdi></dd>
          <dt>Goal</dt><dd>${preview.goal ? html`<${LongText} text=${preview.goal} max=${2_000} />` : html`<span class="warn">empty: the mapping finds nothing in this body</span>`}</dd>
          <dt>User</dt><dd>${preview.user_id ? html`<bdi>${preview.user_id}</bdi>` : html`<span class="dim">none</span>`}</dd>
          ${Object.keys(metadata).length ? html`<dt>Metadata</dt><dd><${Json} value=${metadata} label="Metadata of the run" /></dd>` : null}
          ${preview.credential_keys.length ? html`<dt>Credentials</dt><dd>${preview.credential_keys.map((one) => html`<${Chip} key=${one}>${one}<//> `)}</dd>` : null}`
      : null}
  </dl>`;
}
