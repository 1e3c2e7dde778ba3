// A page of tabs. Each has an address of its own and is a module of its own, read when it is opened.
import { html, useEffect, useState } from "../ui.js";
import { ApiError } from "../api.js";
import { usePageTitle } from "../frame.js";
import { navigate } from "../router.js";
import { may } from "../session.js";
import { Tabs } from "./controls.js";
import { ErrorState, Forbidden, Loading } from "./states.js";

/**
 * @typedef {{key: string, title: string, icon: string, scope: string, load: () => Promise<any>, takesRest?: boolean}} TabModule
 *   takesRest: addresses below the tab are its own; the module's default export gets what is behind the key as `rest`.
 */

const loaded = new Map();

/** @param {{title: string, path: string, tabs: TabModule[], wanted: string}} properties path: address of the page; wanted: what the address has behind it */
export function TabbedPage({ title, path, tabs, wanted }) {
  const allowed = tabs.filter((tab) => may(tab.scope));
  const tab = wanted ? tabs.find((one) => one.key === wanted || (one.takesRest && wanted.startsWith(`${one.key}/`))) : allowed[0];
  // Every tab has an address of its own, so that the page is the same one for all of them and the focus stays.
  useEffect(() => void (!wanted && allowed.length && navigate(`${path}/${allowed[0].key}`, { replace: true })), [wanted]);
  usePageTitle(tab ? `${tab.title} · ${title}` : title);
  return html`<div class="page tabbed">
    <header><h1>${title}</h1></header>
    <${Tabs} label=${title} tabs=${allowed} selected=${tab?.key ?? ""} onSelect=${(key) => navigate(`${path}/${key}`)} />
    ${!tab
      ? html`<${ErrorState} error=${new ApiError(404, "not_found", `There is no page ${path}/${wanted}; there are ${allowed.map((one) => one.key).join(", ")}.`)} />`
      : !may(tab.scope)
        ? html`<${Forbidden} scope=${tab.scope} />`
        : html`<${Pane} key=${path + tab.key} id=${path + tab.key} tab=${tab} rest=${wanted.slice(tab.key.length + 1)} />`}
  </div>`;
}

/** @param {{id: string, tab: TabModule, rest: string}} properties */
function Pane({ id, tab, rest }) {
  const [state, setState] = useState({ view: loaded.get(id) ?? null, error: /** @type {any} */ (null) });
  const load = () =>
    tab.load().then(
      (module) => (loaded.set(id, module.default), setState({ view: module.default, error: null })),
      () => setState({ view: null, error: new ApiError(0, "unreachable", "A part of this page could not be loaded.") }),
    );
  useEffect(() => void (state.view || load()), []);
  if (state.error) return html`<${ErrorState} error=${state.error} onRetry=${load} />`;
  return html`<div role="tabpanel" aria-labelledby=${`tab-${tab.key}`} class="pane">${state.view ? html`<${state.view} rest=${rest} />` : html`<${Loading} rows=${6} />`}</div>`;
}
