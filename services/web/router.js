// Which page is shown: the address under /ui is the only state of navigation, its query holds every filter.
import { signal } from "./ui.js";

export const BASE = "/ui";

/** @typedef {{path: string, query: URLSearchParams, hash: string}} Location */

/** @returns {Location} */
function read() {
  const path = location.pathname.slice(BASE.length).replace(/\/+$/, "") || "/";
  return { path, query: new URLSearchParams(location.search), hash: location.hash.slice(1) };
}

/** Where the person is. Pages read `.query` for their filters. */
export const here = signal(read());

const announced = () => (here.value = read());
addEventListener("popstate", announced);

/**
 * Goes to a path below /ui, such as "/runs?status=failed".
 * @param {string} path
 * @param {{replace?: boolean}} [options] replace: no new entry in the history of the browser
 */
export function navigate(path, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", BASE + path);
  announced();
}

/**
 * Changes query parameters of this page; an empty value removes one.
 * @param {Record<string, string | number | null | undefined>} changes
 * @param {{replace?: boolean}} [options]
 */
export function setQuery(changes, { replace = true } = {}) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "" || value === null || value === undefined) query.delete(name);
    else query.set(name, String(value));
  }
  const text = query.toString();
  navigate(here.value.path + (text ? `?${text}` : "") + location.hash, { replace });
}

/** Path of a page with query parameters, for `href`. @param {string} path @param {Record<string, any>} [query] */
export function link(path, query = {}) {
  const pairs = Object.entries(query).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return BASE + path + (pairs.length ? `?${new URLSearchParams(pairs.map(([name, value]) => [name, String(value)]))}` : "");
}

// Plain links work everywhere; those below /ui do not load the page anew.
addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const anchor = /** @type {Element} */ (event.target).closest?.("a[href]");
  if (!(anchor instanceof HTMLAnchorElement) || anchor.target || anchor.hasAttribute("download")) return;
  if (anchor.origin !== location.origin || !(anchor.pathname + "/").startsWith(BASE + "/")) return;
  if (anchor.pathname.startsWith(BASE + "/-/") || anchor.pathname === BASE + "/logout") return;
  event.preventDefault();
  navigate(anchor.pathname.slice(BASE.length) + anchor.search + anchor.hash);
  if (!anchor.hash) document.getElementById("main")?.scrollTo(0, 0);
});
