// Where the reader of a topic is.
import { html } from "../../ui.js";
import { Icon } from "../../components/icon.js";
import { link } from "../../router.js";

/** @param {{topic?: string}} properties topic: of whose partition the page is */
export function LogCrumbs({ topic }) {
  return html`<nav class="crumbs" aria-label="Where you are"><a href=${link("/log")}>Topics</a>${topic ? html`<${Icon} name="chevron-right" size=${12} /><a href=${link(`/log/${encodeURIComponent(topic)}`)}>${topic}</a>` : null}</nav>`;
}
