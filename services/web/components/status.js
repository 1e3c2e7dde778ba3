// The status of a run as a chip, with the same words and colours everywhere.
import { html } from "../ui.js";
import { Chip } from "./controls.js";

const LOOKS = {
  running: ["live", "circle-dot"],
  completed: ["good", "circle-check"],
  failed: ["bad", "circle-x"],
  cancelled: ["", "circle-slash"],
  quarantined: ["bad", "octagon-x"],
  paused: ["warn", "circle-pause"],
  interrupted: ["warn", "message-square"],
  parked: ["info", "clock"],
};

/** The word that says most about a run: its status, or why it stands still. @param {Partial<Api.Run>} run @returns {string} */
export function statusOf(run) {
  if (run.quarantined) return "quarantined";
  if (run.status !== "running") return run.status ?? "";
  if (run.paused) return "paused";
  if (run.awaited_state === "interrupted") return "interrupted";
  if (run.parked || run.awaited_state === "awaiting_input") return "parked";
  return "running";
}

const WORDS = { interrupted: "waits for an answer", parked: "waits for input" };

/** @param {{run: Partial<Api.Run>}} properties a Run of the API */
export function RunStatus({ run }) {
  const status = statusOf(run);
  const [tone, icon] = LOOKS[status] ?? ["", "circle-dot"];
  const why = run.error || run.quarantine_error || run.pause_reason || run.awaited_on || run.stop_reason || "";
  return html`<${Chip} tone=${tone} icon=${icon} title=${why}>${WORDS[status] ?? status}<//>`;
}
