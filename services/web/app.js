// Begins the page: finds out who is signed in, then shows the frame. Everything else is loaded by the pages.
import { html, render } from "./ui.js";
import { Frame } from "./frame.js";
import { loadSession } from "./session.js";
import "./settings.js";
import "./version.js";

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
loadSession()
  .catch(() => {})
  .finally(() => render(html`<${Frame} />`, root));
