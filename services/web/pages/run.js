// One run: its head, a slider over its moments, and panes that all look at the same history.
import { html, useLayoutEffect, useState } from "../ui.js";
import { ApiError } from "../api.js";
import { Tabs } from "../components/controls.js";
import { useKeys } from "../components/keys.js";
import { ErrorState, Loading } from "../components/states.js";
import { standOf } from "../outcome.js";
import { usePageTitle } from "../frame.js";
import { here, navigate } from "../router.js";
import { Composer } from "./run/composer.js";
import { RunHeader } from "./run/header.js";
import { useHistory } from "./run/history.js";
import { Slider } from "./run/slider.js";

const PANES = [
  { key: "conversation", title: "Conversation", icon: "message-square", load: () => import("./run/conversation.js") },
  { key: "timeline", title: "Timeline", icon: "activity", load: () => import("./run/timeline.js") },
  { key: "events", title: "Events", icon: "list", load: () => import("./run/events.js") },
  { key: "context", title: "Context", icon: "layers", load: () => import("./run/context.js") },
  { key: "tree", title: "Tree", icon: "network", load: () => import("./run/tree.js") },
  { key: "usage", title: "Usage", icon: "coins", load: () => import("./run/usage.js") },
];

/** @param {{params: {run: string, view: string}}} properties */
export default function RunPage({ params }) {
  return html`<${OneRun} key=${params.run} runId=${params.run} view=${params.view} />`;
}

function OneRun({ runId, view }) {
  const history = useHistory(runId);
  const { run, error, reload } = history;
  const selected = view || "conversation";
  const pane = PANES.find((one) => one.key === selected);
  // While the run is read: its view comes with it.
  useLayoutEffect(() => void (pane && loadOnce(pane.load).catch(() => {})), [pane]);
  usePageTitle(run ? `${run.agent} ${standOf(run)}` : runId);
  const select = (key) => {
    const query = new URLSearchParams(here.value.query);
    for (const name of [...query.keys()]) if (name !== "at") query.delete(name);
    navigate(`/runs/${encodeURIComponent(runId)}/${key}${query.size ? `?${query}` : ""}`);
  };
  useKeys("Run", Object.fromEntries(PANES.map((one, at) => [String(at + 1), [one.title, () => select(one.key)]])));

  if (!run) return error ? html`<${ErrorState} isPage error=${error} onRetry=${reload} />` : html`<${Loading} rows=${8} label="Loading the run" />`;
  return html`<div class="page full run-page">
    <${RunHeader} history=${history} actions=${html`<${Lazy} load=${loadActions} history=${history} isQuiet />`} />
    ${error ? html`<${ErrorState} error=${error} onRetry=${reload} compact />` : null}
    <${Slider} history=${history} />
    <${Tabs} tabs=${PANES} selected=${selected} onSelect=${select} label="Views of the run" />
    <section class="run-pane" role="tabpanel" aria-labelledby=${`tab-${selected}`}>
      ${pane ? html`<${Lazy} key=${selected} load=${pane.load} history=${history} />` : html`<${ErrorState} error=${new ApiError(404, "not_found", `A run has no view ${selected}: expected ${PANES.map((one) => one.key).join(", ")}.`)} />`}
    </section>
    ${selected === "conversation" ? html`<${Composer} history=${history} />` : null}
  </div>`;
}

const loadActions = () => import("./run/dialogs.js").then((module) => ({ default: module.RunActions }));

/** @type {Map<() => Promise<any>, any>} */
const loaded = new Map();

/** @param {() => Promise<any>} load @returns {Promise<any>} the view, which is there at once from then on */
const loadOnce = (load) => load().then((module) => (loaded.set(load, module.default), module.default));

/** A part whose module is loaded when it is first shown. isQuiet: nothing stands in its place meanwhile. */
function Lazy({ load, history, isQuiet = false }) {
  const [state, setState] = useState({ view: loaded.get(load), error: null });
  const read = () =>
    loadOnce(load).then(
      (view) => setState({ view: /** @type {any} */ (view), error: null }),
      (error) => setState({ view: undefined, error }),
    );
  useLayoutEffect(() => {
    if (!state.view) read();
  }, []);
  if (state.view) return html`<${state.view} history=${history} />`;
  if (isQuiet) return null;
  return state.error ? html`<${ErrorState} error=${new ApiError(0, "unreachable", "This part of the page could not be loaded.")} onRetry=${read} />` : html`<${Loading} />`;
}
