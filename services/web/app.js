// Begins the page: finds out who is signed in, then shows the frame. Everything else is loaded by the pages.
import { html, render } from "./ui.js";
import { servedVersion } from "./api.js";
import { Frame } from "./frame.js";
import { loadSession } from "./session.js";
import "./settings.js";

const BUILD = document.querySelector('meta[name="build"]')?.getAttribute("content") ?? "";
const VERSION_CHECK_MS = 60_000;
let checkedAt = Date.now();

/** Reloads when the server has another build of this page than the one that runs: after an upgrade. */
async function checkBuild() {
  if (Date.now() - checkedAt < VERSION_CHECK_MS || document.visibilityState !== "visible") return;
  checkedAt = Date.now();
  const served = await servedVersion().catch(() => null);
  if (served && BUILD && served.build !== BUILD) location.reload();
}

// A module of an older build is gone after an upgrade: its import fails, and only a reload helps.
addEventListener("unhandledrejection", (event) => {
  if (/dynamically imported module|Importing a module script failed/.test(String(event.reason))) {
    checkedAt = 0;
    checkBuild();
  }
});
setInterval(checkBuild, VERSION_CHECK_MS / 2);
document.addEventListener("visibilitychange", checkBuild);

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
loadSession()
  .catch(() => {})
  .finally(() => render(html`<${Frame} />`, root));
