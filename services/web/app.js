// Begins the page: finds out who is signed in, then shows the frame. Everything else is loaded by the pages.
import { html, render } from "./ui.js";
import { Frame, loadFirstPage } from "./frame.js";
import { loadSession } from "./session.js";
import "./settings.js";
import "./version.js";

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
// A module that cannot be loaded is told by the frame, which tries again.
Promise.allSettled([loadSession(), loadFirstPage()]).then(() => {
  root.replaceChildren(); // the empty frame of index.html
  render(html`<${Frame} />`, root);
});
