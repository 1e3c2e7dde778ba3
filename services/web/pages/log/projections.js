// The read models: how far behind the log they are.
import { html } from "../../ui.js";
export function ProjectionsTab() {
  return html`<p></p>`;
}
