// Start: one run of an agent, or many at once. An address with ?agent= and ?prompt= fills the form and never sends it.
import { html, signal, useEffect, useMemo, useRef, useState } from "../ui.js";
import { agents, newKey } from "../api.js";
import { Button, Field, Tabs } from "../components/controls.js";
import { useKeys } from "../components/keys.js";
import { ErrorState, Resource } from "../components/states.js";
import { printJson } from "../exact_json.js";
import { useAction, useResource } from "../resource.js";
import { here, link, navigate, setQuery } from "../router.js";
import { Advanced } from "./start/advanced.js";
import { AgentPicker } from "./start/agents.js";
import { FanOut } from "./start/fan_out.js";
import { Images, readImages } from "./start/images.js";
import { bodyOf, commandOf, curlOf, emptyDraft } from "./start/request.js";
import { SameStart } from "./start/same.js";
import { startRun } from "./start/submit.js";

/** What the form holds; it outlives a look at another page. */
const draft = signal(emptyDraft());

export default function Start() {
  const { query } = here.value;
  const tab = query.get("tab") === "fan-out" ? "fan-out" : "one";
  const list = useResource(() => agents.runnable(), []);
  const set = (changes) => (draft.value = { ...draft.value, ...changes });
  const agent = query.get("agent");
  const prompt = query.get("prompt");
  const session = query.get("session_id");
  const isStaged = agent !== null || prompt !== null;
  useEffect(() => {
    if (isStaged || session !== null) set({ ...(agent === null ? {} : { agent }), ...(prompt === null ? {} : { prompt, images: [] }), ...(session === null ? {} : { session_id: session }) });
  }, [agent, prompt, session]);
  return html`<div class="page start">
    <header><h1>Start</h1></header>
    <${Tabs} label="How many runs" selected=${tab} onSelect=${(key) => setQuery({ tab: key === "one" ? "" : key })} tabs=${[
      { key: "one", title: "One run", icon: "play" },
      { key: "fan-out", title: "Fan-out", icon: "layers" },
    ]} />
    <${Resource} of=${list}>${(data) => {
      const isUnknown = draft.value.agent && !data.agents.some((one) => one.name === draft.value.agent);
      return html`
        ${isStaged && prompt ? html`<p class="note">A link has filled this form. Read it before you start: nothing has been sent.</p>` : null}
        ${isUnknown ? html`<p class="note warn">There is no agent <code><bdi>${draft.value.agent}</bdi></code> that you may run. Choose another one.</p>` : null}
        ${tab === "one" ? html`<${OneRun} agents=${data.agents} set=${set} />` : html`<${FanOut} agents=${data.agents} draft=${draft.value} set=${set} />`}
      `;
    }}<//>
  </div>`;
}

function OneRun({ agents: list, set }) {
  const value = draft.value;
  const { body, problems } = useMemo(() => bodyOf(value), [value]);
  const [isTried, setTried] = useState(false);
  const shown = isTried ? problems : {};
  const action = useAction();
  const attempt = useRef({ text: "", key: "" });
  const promptBox = useRef(/** @type {HTMLElement | null} */ (null));
  const send = async () => {
    setTried(true);
    if (action.isBusy || Object.keys(problems).length || !list.some((one) => one.name === value.agent)) return;
    const text = printJson(body);
    if (attempt.current.text !== text) attempt.current = { text, key: newKey() };
    const started = await action.run(() => startRun(body, attempt.current.key));
    if (!started) return;
    attempt.current = { text: "", key: "" };
    set({ prompt: "", images: [], agent_id: "" });
    navigate(`/runs/${encodeURIComponent(started.run_id)}`);
  };
  const [refused, setRefused] = useState("");
  const addImages = async (files) => {
    const read = await readImages(files);
    setRefused(read.refused);
    if (read.images.length) set({ images: [...draft.value.images, ...read.images] });
  };
  /** Files that are pasted or dropped; text is left to the field. */
  const take = (event, source) => {
    if (!source?.files.length) return;
    event.preventDefault();
    addImages(source.files);
  };
  useKeys("Start", { p: ["Go to the prompt", () => promptBox.current?.querySelector("textarea")?.focus()] });
  const command = commandOf(body);
  const submitByKey = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      send();
    }
  };
  return html`<div class="start-columns">
    <form class="card" onSubmit=${(event) => (event.preventDefault(), send())} onKeyDown=${submitByKey}>
      <div class="inside fields">
        <${AgentPicker} agents=${list} value=${value.agent} onChange=${(agent) => set({ agent })} problem=${shown.agent} />
        <div class="prompt" ref=${promptBox} onPaste=${(event) => take(event, event.clipboardData)} onDrop=${(event) => take(event, event.dataTransfer)} onDragOver=${(event) => event.dataTransfer.types.includes("Files") && event.preventDefault()}>
          <${Field} label="Prompt" rows=${5} value=${value.prompt} onInput=${(prompt) => set({ prompt })} error=${shown.prompt} placeholder="What is the agent to do?" />
          <${Images} images=${value.images} onChange=${(images) => set({ images })} onFiles=${addImages} problem=${refused || problems.images} />
        </div>
        <${Advanced} draft=${value} problems=${shown} set=${set} />
        ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
        <div class="actions"><${Button} kind="primary" type="submit" icon="play" isBusy=${action.isBusy}>Start the run<//><span class="dim wide-only"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span><span class="grow"></span><${Button} kind="quiet" onClick=${() => (draft.value = emptyDraft())}>Empty the form<//></div>
      </div>
    </form>
    <${SameStart} curl=${curlOf(location.origin, "/v1/runs", body)} command=${command} shared=${location.origin + link("/start", { agent: value.agent, prompt: value.prompt })} />
  </div>`;
}
