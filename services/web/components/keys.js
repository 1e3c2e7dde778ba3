// Keyboard shortcuts: a page registers its own while it is shown, `?` lists them all.
import { html, signal, useLayoutEffect } from "../ui.js";
import { singleKeys } from "../settings.js";
import { Checkbox } from "./controls.js";
import { Dialog } from "./dialog.js";

const SEQUENCE_MS = 800;
/** @type {Map<symbol, {group: string, keys: Record<string, [string, () => void]>}>} */
const registered = new Map();
const isOpen = signal(false);
let before = "";
let beforeAt = 0;

export const registerKeys = { open: () => (isOpen.value = true) };

/**
 * Binds keys while the component is shown. Not while a person types in a field.
 * @param {string} group heading in the list of shortcuts
 * @param {Record<string, [string, () => void]>} keys "j", "Enter" or a sequence "g r" -> [what it does, action]
 */
export function useKeys(group, keys) {
  // With the drawing and not after it: a key that is pressed on what is seen acts on what is seen.
  useLayoutEffect(() => {
    const id = Symbol(group);
    registered.set(id, { group, keys });
    return () => registered.delete(id);
  });
}

addEventListener("keydown", (event) => {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.metaKey || event.ctrlKey || event.altKey || event.defaultPrevented) return;
  if (target.closest?.("input, textarea, select, [contenteditable], dialog")) {
    if (event.key === "Escape" && !target.closest("dialog")) target.blur();
    return;
  }
  if (event.key.length === 1 && !singleKeys.value) return;
  if (event.key === "?") return void (isOpen.value = true);
  if ((event.key === "Enter" || event.key === " ") && target.closest?.("a, button, summary, [role=tab]")) return;
  const sequence = Date.now() - beforeAt < SEQUENCE_MS ? `${before} ${event.key}` : "";
  before = event.key;
  beforeAt = Date.now();
  const groups = [...registered.values()].reverse();
  // A sequence of any group comes before a single key: "g r" goes to the runs even where "r" means something.
  for (const name of sequence ? [sequence, event.key] : [event.key]) {
    const found = groups.find(({ keys }) => keys[name])?.keys[name];
    if (!found) continue;
    event.preventDefault();
    before = "";
    return found[1]();
  }
});

export function ShortcutsDialog() {
  if (!isOpen.value) return null;
  return html`<${Dialog} title="Keyboard shortcuts" onClose=${() => (isOpen.value = false)}>
    <${Checkbox} label="Letters, digits and signs act at once" checked=${singleKeys.value} onChange=${(checked) => (singleKeys.value = checked)} hint="Off: only Enter, Escape and the arrows do; everything else is reached with Tab." />
    ${[...registered.values()].map(
      ({ group, keys }) => html`<h3>${group}</h3><dl class="keys">${Object.entries(keys).map(([key, [what]]) => html`<dt><kbd>${key}</kbd></dt><dd>${what}</dd>`)}</dl>`,
    )}
  <//>`;
}
