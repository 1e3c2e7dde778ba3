// What a tool asks a person in the middle of its call (an elicitation of MCP): a form of its fields, or an address to visit.
import { html, useState } from "../../ui.js";
import { parseJson, printJson } from "../../exact_json.js";
import { Button, Field } from "../../components/controls.js";

/**
 * @typedef {{server: string, mode: string, url?: string, schema?: {properties: Record<string, any>, required?: string[]}}} Asked
 */

/** What the context of a question says; null for a question that a tool does not ask. @param {any} question @returns {Asked | null} */
export function askedOf(question) {
  if (question.kind !== "elicitation") return null;
  try {
    return parseJson(question.context);
  } catch {
    return null;
  }
}

/** The value that a field's text means. @param {any} field @param {string} text */
export function valueOf(field, text) {
  if (field.type === "boolean") return text === "true";
  if (field.type === "number" || field.type === "integer") return Number.isNaN(Number(text)) ? text : Number(text);
  if (field.type === "array") return text.split(",").map((one) => one.trim()).filter(Boolean);
  return text;
}

/** The values to choose from, with none first; undefined for a field of free text. @param {any} field */
function choicesOf(field) {
  const values = field.type === "boolean" ? ["true", "false"] : (field.enum ?? field.oneOf?.map((one) => ({ value: one.const, title: one.title ?? one.const })));
  return field.type === "array" || !values ? undefined : [{ value: "", title: "" }, ...values];
}

/** @param {{asked: Asked, isDisabled: boolean, isBusy: boolean, onAnswer: (text: string) => void, children: any}} properties */
export function Form({ asked, isDisabled, isBusy, onAnswer, children }) {
  const [texts, setTexts] = useState(/** @type {Record<string, string>} */ ({}));
  const fields = Object.entries(asked.schema?.properties ?? {});
  const missing = (asked.schema?.required ?? []).some((name) => !texts[name]);
  const send = (event) => {
    event.preventDefault();
    const given = fields.filter(([name]) => texts[name]).map(([name, field]) => [name, valueOf(field, texts[name])]);
    if (!isDisabled && !missing) onAnswer(printJson(Object.fromEntries(given)));
  };
  return html`<form onSubmit=${send}>
    ${fields.map(([name, field]) => {
      const set = (text) => setTexts({ ...texts, [name]: text });
      const label = field.title ?? name;
      const hint = field.type === "array" ? `Some of ${(field.items?.enum ?? []).join(", ")}, with commas between` : field.description;
      return html`<${Field} key=${name} label=${label} value=${texts[name] ?? ""} options=${choicesOf(field)} onInput=${set} hint=${hint} />`;
    })}
    <div class="actions"><${Button} kind="primary" type="submit" icon="send" isBusy=${isBusy} isDisabled=${isDisabled || missing}>Answer<//><span class="grow"></span>${children}</div>
  </form>`;
}

/** An address of a server, shown whole: a person has to see where it leads. @param {{asked: Asked}} properties */
export function Address({ asked }) {
  return html`<p>It asks you to open <a href=${asked.url} target="_blank" rel="noopener noreferrer"><bdi>${asked.url}</bdi></a>, and to say here when it is done.</p>`;
}
