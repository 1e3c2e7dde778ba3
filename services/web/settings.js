// Choices of this person in this browser: theme, density, collapsed navigation, saved filters. Never a token.
import { effect, signal } from "./ui.js";

const KEY = "loomlog.ui";

function stored() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {};
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
/** The tenant an administrator looks at; empty: all. */
export const tenantFocus = signal(typeof first.tenantFocus === "string" ? first.tenantFocus : "");

effect(() => {
  const root = document.documentElement;
  if (theme.value === "system") delete root.dataset.theme;
  else root.dataset.theme = theme.value;
});
effect(() => {
  const text = JSON.stringify({
    theme: theme.value,
    navigationClosed: navigationClosed.value,
    savedFilters: savedFilters.value,
    tenantFocus: tenantFocus.value,
  });
  try {
    localStorage.setItem(KEY, text);
  } catch {
    // A browser that keeps nothing: the choices last as long as the page.
  }
});
