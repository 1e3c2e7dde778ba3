// After an upgrade the server has another build of this page than the one that runs: the page loads itself anew, once for a build.
import { servedVersion } from "./api.js";

const BUILD = document.querySelector('meta[name="build"]')?.getAttribute("content") ?? "";
const EVERY_MS = 60_000;
/** Build that this tab was loaded anew for. While replicas of two versions answer in turn, once is enough. */
const RELOADED_FOR = "loomlog.ui.reloaded";
let checkedAt = Date.now();

/** Reloads the page if the server has another build. @param {{isUrgent?: boolean}} [options] isUrgent: also if it was asked a moment ago */
export async function checkBuild({ isUrgent = false } = {}) {
  if (!isUrgent && (Date.now() - checkedAt < EVERY_MS || document.visibilityState !== "visible")) return;
  checkedAt = Date.now();
  const served = await servedVersion().catch(() => null);
  if (!served || !BUILD || served.build === BUILD || sessionStorage.getItem(RELOADED_FOR) === served.build) return;
  sessionStorage.setItem(RELOADED_FOR, served.build);
  location.reload();
}

setInterval(checkBuild, EVERY_MS / 2);
document.addEventListener("visibilitychange", () => checkBuild());
