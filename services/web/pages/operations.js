// Operations: pauses, limits, routing, snapshots, erasure, acts, health, configuration, hooks, families. Each tab is a module of its own, read when it is opened.
import { html, useEffect, useState } from "../ui.js";
import { ApiError } from "../api.js";
import { Tabs } from "../components/controls.js";
import { ErrorState, Forbidden, Loading } from "../components/states.js";
import { usePageTitle } from "../frame.js";
import { navigate } from "../router.js";
import { may } from "../session.js";

const TABS = [
  { key: "pause", title: "Pause", icon: "pause", scope: "runs:create", load: () => import("./operations/pause.js") },
  { key: "limits", title: "Limits", icon: "coins", scope: "runs:read tenant:read", load: () => import("./operations/limits.js") },
  { key: "routing", title: "Routing", icon: "network", scope: "tenant:read", load: () => import("./operations/routing.js") },
  { key: "snapshots", title: "Snapshots", icon: "archive", scope: "substrate:admin", load: () => import("./operations/snapshots.js") },
  { key: "erasure", title: "Erasure", icon: "trash-2", scope: "substrate:tenant", load: () => import("./operations/erasure.js") },
  { key: "acts", title: "Acts", icon: "scroll-text", scope: "substrate:tenant", load: () => import("./operations/acts.js") },
  { key: "health", title: "Health", icon: "shield-check", scope: "substrate:admin", load: () => import("./operations/health.js") },
  { key: "configuration", title: "Configuration", icon: "settings", scope: "tenant:read", load: () => import("./operations/configuration.js") },
  { key: "hooks", title: "Hooks", icon: "link", scope: "substrate:tenant", load: () => import("./operations/hooks.js") },
  { key: "families", title: "Families", icon: "layers", scope: "substrate:tenant", load: () => import("./operations/families.js") },
];
const loaded = new Map();

/** @param {{params: {rest?: string}}} properties rest: the key of a tab */
export default function Operations({ params }) {
  const allowed = TABS.filter((tab) => may(tab.scope));
  const wanted = params.rest ?? "";
  const tab = wanted ? TABS.find((one) => one.key === wanted) : allowed[0];
  // Every tab has an address of its own, so that the page is the same one for all of them and the focus stays.
  useEffect(() => void (!wanted && allowed.length && navigate(`/operations/${allowed[0].key}`, { replace: true })), [wanted]);
  usePageTitle(tab ? `${tab.title} · Operations` : "Operations");
  return html`<div class="page operations">
    <header><h1>Operations</h1></header>
    <${Tabs} label="Operations" tabs=${allowed} selected=${tab?.key ?? ""} onSelect=${(key) => navigate(`/operations/${key}`)} />
    ${!tab
      ? html`<${ErrorState} error=${new ApiError(404, "not_found", `There is no page /operations/${wanted}; there are ${allowed.map((one) => one.key).join(", ")}.`)} />`
      : !may(tab.scope)
        ? html`<${Forbidden} scope=${tab.scope} />`
        : html`<${Pane} key=${tab.key} tab=${tab} />`}
  </div>`;
}

function Pane({ tab }) {
  const [state, setState] = useState({ view: loaded.get(tab.key) ?? null, error: /** @type {any} */ (null) });
  const load = () =>
    tab.load().then(
      (module) => (loaded.set(tab.key, module.default), setState({ view: module.default, error: null })),
      () => setState({ view: null, error: new ApiError(0, "unreachable", "A part of this page could not be loaded.") }),
    );
  useEffect(() => void (state.view || load()), []);
  if (state.error) return html`<${ErrorState} error=${state.error} onRetry=${load} />`;
  return html`<div role="tabpanel" aria-labelledby=${`tab-${tab.key}`} class="pane">${state.view ? html`<${state.view} />` : html`<${Loading} rows=${6} />`}</div>`;
}
