// What happens after a run that a schedule or a webhook has started, in words.
import { html } from "../../ui.js";
import { link } from "../../router.js";

/** What happens after a run. @param {any} hook */
export function hookWords(hook) {
  const when = hook.on && hook.on !== "completed" ? html` <span class="dim">when ${hook.on === "any" ? "it ends" : hook.on}</span>` : null;
  const what = {
    "channel.publish": html`publishes to <a href=${link(`/channels/${String(hook.channel ?? "").split("/").map(encodeURIComponent).join("/")}`)}><bdi>${hook.channel}</bdi></a>`,
    "memory.set": html`sets <code>${hook.key}</code> in the memory of the ${hook.scope}`,
    http: html`sends a signed request to <bdi>${hook.url}</bdi>`,
    "mcp.call": html`calls ${hook.tool} of ${hook.server}`,
  }[hook.kind];
  return html`${what ?? hook.kind}${when}`;
}
