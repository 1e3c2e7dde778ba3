// Small controls that every page uses: buttons, copy, chips, tabs, fields.
import { html, useEffect, useId, useRef, useState } from "../ui.js";
import { Icon } from "./icon.js";

/**
 * @param {{kind?: "primary" | "danger" | "quiet" | "", icon?: string, isBusy?: boolean, isDisabled?: boolean, title?: string, type?: string, href?: string, onClick?: (event: any) => void, children?: any, label?: string, small?: boolean, download?: boolean, isPressed?: boolean}} properties
 *   isPressed: of a button that stays down. label: spoken name of a button with only an icon. href: a link that looks like a button.
 */
export function Button({ kind = "", icon = "", isBusy = false, isDisabled = false, title, type = "button", href, onClick, children, label, small = false, download, isPressed }) {
  const classes = `button ${kind}${small ? " small" : ""}${children ? "" : " only-icon"}`;
  const inside = html`${isBusy ? html`<${Icon} name="loader-circle" spin />` : icon ? html`<${Icon} name=${icon} />` : null}${children ? html`<span>${children}</span>` : null}`;
  if (href) return html`<a class=${classes} href=${href} title=${title} aria-label=${label} download=${download}>${inside}</a>`;
  return html`<button class=${classes} type=${type} title=${title} aria-label=${label} aria-busy=${isBusy} aria-pressed=${isPressed} disabled=${isDisabled || isBusy} onClick=${onClick}>${inside}</button>`;
}

/** Copies a text and says so for a second. @param {{text: string, label?: string, children?: any}} properties */
export function CopyButton({ text, label = "Copy", children }) {
  const [done, setDone] = useState(false);
  const copy = async (event) => {
    event.stopPropagation();
    event.preventDefault();
    setDone(await copyText(text));
    setTimeout(() => setDone(false), 1_200);
  };
  return html`<button class="copy" type="button" title=${label} aria-label=${children ? undefined : label} onClick=${copy}>
    ${children ?? null}<${Icon} name=${done ? "check" : "copy"} size=${13} /><span class="spoken" role="status">${done ? "copied" : ""}</span>
  </button>`;
}

/** An id in a narrow form that copies on click. @param {{id: string | null | undefined, short?: number, href?: string}} properties short: last characters shown; 0: all */
export function Id({ id, short = 10, href }) {
  if (!id) return html`<span class="dim">none</span>`;
  const text = short && id.length > short + 4 ? `…${id.slice(-short)}` : id;
  return html`<span class="id" title=${id}>${href ? html`<a href=${href}><code>${text}</code></a>` : html`<code>${text}</code>`}<${CopyButton} text=${id} label=${`Copy ${id}`} /></span>`;
}

/** @param {string} text @returns {Promise<boolean>} */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Without https only the old way works.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

/** A word with a colour: "good", "bad", "warn", "live", "info" or "" . @param {{tone?: string, icon?: string, title?: string, children?: any}} properties */
export function Chip({ tone = "", icon, title, children }) {
  return html`<span class=${`chip ${tone}`} title=${title}>${icon ? html`<${Icon} name=${icon} size=${13} />` : null}<span>${children}</span></span>`;
}

/**
 * Tabs whose choice is the caller's (usually in the address). Arrow keys move.
 * @param {{tabs: {key: string, title: string, icon?: string, count?: number}[], selected: string, onSelect: (key: string) => void, label: string}} properties
 */
export function Tabs({ tabs, selected, onSelect, label }) {
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  // In a narrow window the tabs scroll: the one that is shown is in view.
  useEffect(() => {
    const box = list.current?.getBoundingClientRect();
    const tab = list.current?.querySelector("[aria-selected=true]")?.getBoundingClientRect();
    if (list.current && box && tab && (tab.left < box.left || tab.right > box.right)) list.current.scrollLeft += tab.left - box.left - 12;
  }, [selected]);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = (tabs.findIndex((tab) => tab.key === selected) + step + tabs.length) % tabs.length;
    onSelect(tabs[at].key);
    /** @type {HTMLElement | undefined} */ (list.current?.children[at])?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} ref=${list} onKeyDown=${move}>
    ${tabs.map(
      (tab) => html`<button role="tab" type="button" key=${tab.key} id=${`tab-${tab.key}`} aria-selected=${tab.key === selected} tabindex=${tab.key === selected ? 0 : -1} onClick=${() => onSelect(tab.key)}>
        ${tab.icon ? html`<${Icon} name=${tab.icon} />` : null}${tab.title}${tab.count === undefined ? null : html`<small class="count">${tab.count}</small>`}
      </button>`,
    )}
  </div>`;
}

/**
 * A labelled field. `children` may be a control of the caller's that takes `id`; else an input (or textarea with rows) is made.
 * @param {{label: string, hint?: any, error?: string, value?: string, onInput?: (value: string) => void, type?: string, rows?: number, options?: (string | {value: string, title: string})[], placeholder?: string, required?: boolean, code?: boolean, autofocus?: boolean, list?: string[], min?: any, max?: any, step?: any, inline?: boolean}} properties
 */
export function Field({ label, hint, error, value, onInput, type = "text", rows = 0, options, placeholder, required, code, autofocus, list, min, max, step, inline }) {
  const id = useId();
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => {
    if (autofocus) field.current?.focus();
  }, []);
  const shared = { id, ref: field, required, placeholder, "aria-invalid": error ? "true" : undefined, "aria-describedby": hint || error ? `${id}-hint` : undefined };
  const changed = (event) => onInput?.(event.currentTarget.value);
  const control = options
    ? html`<select ...${shared} value=${value} onChange=${changed}>${options.map((one) => (typeof one === "string" ? { value: one, title: one } : one)).map((one) => html`<option value=${one.value} selected=${one.value === value} key=${one.value}>${one.title}</option>`)}</select>`
    : rows
      ? html`<textarea ...${shared} class=${code ? "code" : ""} rows=${rows} value=${value} onInput=${changed} spellcheck=${!code}></textarea>`
      : html`<input ...${shared} class=${code ? "code" : ""} type=${type} value=${value} onInput=${changed} list=${list ? `${id}-list` : undefined} min=${min} max=${max} step=${step} autocomplete="off" />`;
  return html`<div class=${inline ? "field inline" : "field"}>
    <label for=${id}>${label}${required ? html` <span class="dim" aria-hidden="true">*</span>` : null}</label>
    ${control}
    ${list ? html`<datalist id=${`${id}-list`}>${list.map((one) => html`<option value=${one} key=${one} />`)}</datalist>` : null}
    ${error ? html`<p class="problem" id=${`${id}-hint`}>${error}</p>` : hint ? html`<p class="hint" id=${`${id}-hint`}>${hint}</p>` : null}
  </div>`;
}

/** @param {{label: any, checked: boolean, onChange: (checked: boolean) => void, hint?: string}} properties */
export function Checkbox({ label, checked, onChange, hint }) {
  const id = useId();
  return html`<div class="check"><input id=${id} type="checkbox" checked=${checked} onChange=${(event) => onChange(event.currentTarget.checked)} /><label for=${id}>${label}${hint ? html` <small class="hint">${hint}</small>` : null}</label></div>`;
}
