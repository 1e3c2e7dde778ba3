// Choices of this person in this browser: theme, density, collapsed navigation, saved filters. Never a token.
import { effect, signal } from "./ui.js";
import { parseJson, printJson } from "./exact_json.js";

const KEY = "loomlog.ui";

function stored() {
  try {
    return parseJson(localStorage.getItem(KEY) ?? "{}") ?? {};
  } catch {
    return {};
  }
}

const first = stored();
/** "system", "light", "dark" or "contrast". */
export const theme = signal(["light", "dark", "contrast"].includes(first.theme) ? first.theme : "system");
export const navigationClosed = signal(first.navigationClosed === true);
/** Saved filters of lists: page -> [{name, query}]. @type {import("@preact/signals").Signal<Record<string, {name: string, query: string}[]>>} */
export const savedFilters = signal(typeof first.savedFilters === "object" && first.savedFilters ? first.savedFilters : {});
/** Whether keys without Ctrl or Alt act (WCAG 2.1.4): who speaks to the browser, or has a restless hand, turns them off. */
export const singleKeys = signal(first.singleKeys !== false);
/** The tenant an administrator looks at; empty: all. */
export const tenantFocus = signal(typeof first.tenantFocus === "string" ? first.tenantFocus : "");

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
});
effect(() => {
  const text = printJson({
    theme: theme.value,
    navigationClosed: navigationClosed.value,
    savedFilters: savedFilters.value,
    tenantFocus: tenantFocus.value,
    singleKeys: singleKeys.value,
  });
  try {
    localStorage.setItem(KEY, text);
  } catch {
    // A browser that keeps nothing: the choices last as long as the page.
  }
});
