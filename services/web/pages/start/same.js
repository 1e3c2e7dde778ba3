// The same start for a terminal, and as a link that fills the form.
import { html } from "../../ui.js";
import { CopyButton } from "../../components/controls.js";

/** @param {{curl: string, command?: {command: string, left: string[]}, shared?: string}} properties */
export function SameStart({ curl, command, shared }) {
  return html`<aside class="card same" aria-label="The same start elsewhere">
    <header><h2>The same elsewhere</h2></header>
    <div class="inside fields">
      ${command
        ? html`<div><h3>Command line</h3><${Shell} text=${command.command} />${command.left.length ? html`<p class="hint">The command line has no option for ${command.left.join(", ")}.</p>` : null}</div>`
        : null}
      <div><h3>curl</h3><${Shell} text=${curl} /></div>
      ${shared ? html`<div><h3>Link</h3><p class="hint">Fills this form for somebody else; it is sent only when they press start.</p><${CopyButton} text=${shared} label="Copy the link">Copy the link <//></div>` : null}
    </div>
  </aside>`;
}

function Shell({ text }) {
  return html`<div class="shell"><pre class="block" tabindex="0"><code><bdi>${text}</bdi></code></pre><${CopyButton} text=${text} label="Copy" /></div>`;
}
