// The status of a run as a chip, with the same words and colours everywhere.
import { html } from "../ui.js";
import { LOOKS, standOf, whyOf } from "../outcome.js";
import { Chip } from "./controls.js";

/** @param {{run: import("../outcome.js").Stand}} properties a Run of the API, or a side of a comparison */
export function RunStatus({ run }) {
  const stand = standOf(run);
  const [tone, icon] = LOOKS[stand] ?? ["", "circle-dot"];
  return html`<${Chip} tone=${tone} icon=${icon} title=${whyOf(run)}>${stand}<//>`;
}
