// Dialogs on the browser's own <dialog>: focus is kept inside, Escape closes.
import { html, useId, useLayoutEffect, useRef, useState } from "../ui.js";
import { useAction } from "../resource.js";
import { Button, CopyButton, Field } from "./controls.js";
import { ErrorState } from "./states.js";

/** @param {{title: string, onClose: () => void, children?: any, actions?: any, wide?: boolean}} properties shown as long as it is rendered */
export function Dialog({ title, onClose, children, actions, wide = false }) {
  const box = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  // Before the effects of the children, so that a field that wants the focus gets it.
  useLayoutEffect(() => {
    const before = /** @type {HTMLElement | null} */ (document.activeElement);
    const dialog = box.current;
    dialog?.showModal();
    // The browser takes the button that closes; a person who typed a space would close what they just opened.
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(".content :is(input, textarea, select), footer .button"))?.focus();
    return () => {
      dialog?.close(); // as long as it is open, nothing behind it takes the focus
      before?.focus?.();
    };
  }, []);
  return html`<dialog ref=${box} class=${wide ? "wide" : ""} aria-labelledby=${id} onCancel=${(event) => (event.preventDefault(), onClose())} onClick=${(event) => event.target === box.current && onClose()}>
    <div class="dialog">
      <header><h2 id=${id}>${title}</h2><${Button} kind="quiet" icon="x" label="Close" onClick=${onClose} /></header>
      <div class="content">${children}</div>
      ${actions ? html`<footer>${actions}</footer>` : null}
    </div>
  </dialog>`;
}

/**
 * Asks before something that cannot be undone. `typed`: a word that must be typed first. A reason may be given (takesReason) or must be.
 * @param {{title: string, children?: any, confirm: string, danger?: boolean, typed?: string, needsReason?: boolean, takesReason?: boolean, onConfirm: (reason: string) => Promise<any>, onClose: () => void}} properties
 */
export function Confirm({ title, children, confirm, danger = false, typed = "", needsReason = false, takesReason = false, onConfirm, onClose }) {
  const [text, setText] = useState("");
  const [reason, setReason] = useState("");
  const action = useAction();
  const isReady = (!typed || text === typed) && (!needsReason || reason.trim());
  const go = async () => (await action.run(() => onConfirm(reason.trim()))) !== false && onClose();
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>${/^Cancel/.test(confirm) ? "Keep it" : "Cancel"}<//><${Button} kind=${danger ? "danger" : "primary"} isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${go}>${confirm}<//>`}>
    ${children}
    ${needsReason || takesReason ? html`<${Field} label="Reason" value=${reason} onInput=${setReason} required=${needsReason} hint="Kept in the log." />` : null}
    ${typed ? html`<${Field} label=${`Type ${typed} to go on`} value=${text} onInput=${setText} required />` : null}
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}

/** Shows a secret that no other answer has. @param {{title: string, secret: string, label: string, children?: any, onClose: () => void}} properties label: of the button that copies it; children: what it is for */
export function ShownOnce({ title, secret, label, children, onClose }) {
  return html`<${Dialog} title=${title} onClose=${onClose} actions=${html`<${Button} kind="primary" onClick=${onClose}>Close<//>`}>
    <div class="note warn">Keep it now: it is not shown again. ${children}</div>
    <p class="command"><code class="wraps">${secret}</code><${CopyButton} text=${secret} label=${label} /></p>
  <//>`;
}
