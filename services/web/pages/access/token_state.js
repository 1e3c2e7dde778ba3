// The state of a token as a word with a colour, with when it ends.
import { html } from "../../ui.js";
import { Chip } from "../../components/controls.js";
import { Time, now } from "../../components/time.js";
import { tokenState } from "./model.js";

/** @param {{token: {active: boolean, retired_at?: string, expires_at?: string}}} properties */
export function TokenState({ token }) {
  const [tone, word] = tokenState(token, now.value);
  const ends = token.retired_at ?? token.expires_at;
  return html`<span class="nowrap"><${Chip} tone=${tone}>${word}<//>${ends ? html` <small class="dim">${word === "in force" || word === "rotated" ? "until" : "since"} <${Time} at=${ends} relative /></small>` : null}</span>`;
}
