// Short notices of what an action did, read out by screen readers; they leave by themselves, problems stay until closed.
import { html, signal } from "../ui.js";
import { Button } from "./controls.js";
import { Icon } from "./icon.js";

const KEPT_MS = 5_000;
const shown = signal(/** @type {{id: number, text: any, tone: string}[]} */ ([]));
let last = 0;

/** @param {any} text @param {"good" | "bad"} [tone] */
export function toast(text, tone = "good") {
  const id = (last += 1);
  shown.value = [...shown.value.slice(-4), { id, text, tone }];
  if (tone === "good") setTimeout(() => close(id), KEPT_MS);
}

/** Says why an action failed, in the server's words. @param {any} error */
export const toastError = (error) => toast(error?.message ?? String(error), "bad");

const close = (id) => (shown.value = shown.value.filter((one) => one.id !== id));

export function Toasts() {
  return html`<div class="toasts" role="log" aria-live="polite">
    ${shown.value.map((one) => html`<div class=${`toast ${one.tone}`} key=${one.id}><${Icon} name=${one.tone === "good" ? "circle-check" : "circle-alert"} /><span>${one.text}</span><${Button} kind="quiet" small icon="x" label="Close" onClick=${() => close(one.id)} /></div>`)}
  </div>`;
}
