// Making versions: of a new name, from another version, or of several names at once. The server checks, and its words are shown.
import { html, useEffect, useState } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Checkbox, Field, Tabs } from "../../components/controls.js";
import { Difference } from "../../components/difference.js";
import { ErrorState, Loading, Resource } from "../../components/states.js";
import { toast } from "../../components/toast.js";
import { usePageTitle } from "../../frame.js";
import { useAction, useResource } from "../../resource.js";
import { here, link, navigate } from "../../router.js";
import { AgentForm } from "./agent_form.js";
import { Crumbs } from "./definition.js";
import { definitionPath, oneOf } from "./kinds.js";
import { editable, loadYaml, overlayOf, parseText, toYaml } from "./text.js";

const FORM_KINDS = new Set(["agent"]);

/** Loads what a fork begins with: the named version, what is active, or what the file says. */
async function readOrigin(kind, name, from, tenant, signal) {
  await loadYaml();
  if (!name) return { entry: null, version: null };
  const { definitions } = await library.list({ kind: kind.kind, name, tenant }, { signal });
  const entry = definitions[0] ?? null;
  const id = from || entry?.active_def_id || entry?.static_def_id;
  return { entry, version: id ? await library.version(id, { tenant }, { signal }) : null };
}

/** @param {{kind: import("./kinds.js").Kind, name: string, isFork: boolean}} properties */
export function EditorPage({ kind, name, isFork }) {
  const query = here.value.query;
  const tenant = query.get("tenant") ?? "";
  const from = query.get("from") ?? "";
  usePageTitle(isFork ? `New version of ${name}` : `New ${kind.one}`);
  const origin = useResource((signal) => readOrigin(kind, isFork ? name : "", from, tenant, signal), [kind.kind, name, from, tenant]);
  return html`<div class="page narrow">
    <${Resource} of=${origin}>${(data) => html`<${Editor} kind=${kind} name=${name || (query.get("name") ?? "")} isFork=${isFork} tenant=${tenant} entry=${data.entry} origin=${data.version} />`}<//>
  </div>`;
}

function Editor({ kind, name: givenName, isFork, tenant, entry, origin }) {
  const isFile = origin?.version === 0;
  const before = editable(origin?.definition ?? {});
  const [name, setName] = useState(givenName);
  const [value, setValue] = useState(/** @type {Record<string, any>} */ (isFork ? before : kind.example));
  const [text, setText] = useState(() => toYaml(isFork ? before : kind.example));
  const [view, setView] = useState(FORM_KINDS.has(kind.kind) ? "form" : "text");
  const [why, setWhy] = useState("");
  const [isActive, setActive] = useState(!isFork || Boolean(kind.forksPromote));
  const [isRoot, setRoot] = useState(false);
  const [rows] = useState(() => Math.max(10, Math.min(28, text.split("\n").length + 3)));
  const [problem, setProblem] = useState("");
  const action = useAction();

  /** What the person has written, or null with the problem shown. */
  const written = () => {
    if (view === "form") return value;
    try {
      setProblem("");
      return parseText(text);
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
      return null;
    }
  };
  const change = (next) => {
    const now = written();
    if (now === null) return;
    setValue(now);
    setText(view === "form" ? toYaml(now) : text);
    setView(next);
  };
  const save = async () => {
    const definition = written();
    if (definition === null) return;
    const isNewLine = !isFork || isRoot;
    const body = isNewLine
      ? { op: "create", name: name.trim(), overlay: definition, description: why, promote: isActive }
      : { op: "fork", name, overlay: overlayOf(before, definition, kind.alternatives), description: why, promote: isActive, ...(isFile ? {} : { parent_def_id: origin.def_id }) };
    const made = await action.run(() => library.operate(kind.kind, body, { tenant }));
    if (!made) return;
    toast(made.deduplicated ? `Version ${made.version} says the same already; no other was made.` : `Version ${made.version} of ${made.name} is made${made.promoted ? " and active" : ""}.`);
    navigate(`${definitionPath(kind.kind, made.name)}?${new URLSearchParams({ v: made.def_id, ...(tenant ? { tenant } : {}) })}`);
  };
  const back = isFork ? link(definitionPath(kind.kind, givenName), { tenant, v: origin && !isFile ? origin.def_id : "" }) : link(`/library/${kind.kind}`, { tenant });
  const tabs = [...(FORM_KINDS.has(kind.kind) ? [{ key: "form", title: "Form" }] : []), { key: "text", title: "YAML or JSON" }, ...(isFork ? [{ key: "changes", title: "Changes" }] : [])];

  return html`
    <header>
      <${Crumbs} kind=${kind} tenant=${tenant} />
      <h1>${isFork ? html`New version of <bdi>${givenName}</bdi>` : `New ${kind.one}`}</h1>
      <p class="sub">${isFork ? (isFile ? "It begins with what the file says; the file is left as it is." : origin ? `It begins with version ${origin.version}. What is left as it is stays that of the version.` : "Nothing of this name is active: name a version to begin with.") : kind.what}</p>
    </header>
    <form class="card" onSubmit=${(event) => (event.preventDefault(), save())}>
      <div class="inside fields">
        ${isFork ? null : html`<${Field} label="Name" value=${name} onInput=${setName} required autofocus hint="Letters, digits, _ and -, with / between parts. It stays as it is." />`}
        ${tabs.length > 1 ? html`<${Tabs} label="How it is written" tabs=${tabs} selected=${view} onSelect=${change} />` : null}
        <div role=${tabs.length > 1 ? "tabpanel" : undefined} aria-labelledby=${tabs.length > 1 ? `tab-${view}` : undefined}>
          ${view === "form" ? html`<${AgentForm} value=${value} onChange=${setValue} tenant=${tenant} />` : null}
          ${view === "text" ? html`<${Field} label="Definition" value=${text} onInput=${(next) => (setText(next), setProblem(""))} rows=${rows} code error=${problem} hint=${html`The keys of ${oneOf(kind)}, as in a configuration file. The server checks them when it is saved.`} />` : null}
          ${view === "changes" ? html`<${Difference} before=${toYaml(before, { sorted: true })} after=${toYaml(value, { sorted: true })} label="What the new version changes" />` : null}
        </div>
        <${Field} label="Why" value=${why} onInput=${setWhy} placeholder="What this version is for" hint="Shown in the history of the name." />
        <${Checkbox} label="Make it active" checked=${isActive} onChange=${setActive} hint="Runs that begin from then on use it." />
        ${isFork && !isFile && entry && !entry.static_def_id && kind.kind === "agent"
          ? html`<${Checkbox} label="Without a parent" checked=${isRoot} onChange=${setRoot} hint="A version made from another one may have no tools that the first of its line has not. This begins a new line." />`
          : null}
        ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
      </div>
      <footer class="form-actions"><${Button} href=${back}>Cancel<//><${Button} kind="primary" type="submit" icon="save" isBusy=${action.isBusy} isDisabled=${view === "changes" ? false : !isFork && !name.trim()}>${isActive ? "Save and make active" : "Save"}<//></footer>
    </form>
  `;
}

const SEVERAL = `# Versions of all of these become active at once, or none does. Keys that are left out stay as they are.
definitions:
  - kind: skill
    name: cite
    overlay:
      body: Name your sources.
  - kind: agent
    name: researcher
    overlay:
      skills: [cite]
description: answers name their sources
`;

/** Several definitions at once, as `loomlog defs apply` takes them. */
export function ApplyPage() {
  usePageTitle("Apply several definitions");
  const tenant = here.value.query.get("tenant") ?? "";
  const [text, setText] = useState(SEVERAL);
  const [problem, setProblem] = useState("");
  const [isReady, setReady] = useState(false);
  const [done, setDone] = useState(/** @type {any} */ (null));
  const action = useAction();
  useEffect(() => {
    loadYaml().then(() => setReady(true));
  }, []);
  const save = async () => {
    let body;
    try {
      body = parseText(text);
      setProblem("");
    } catch (error) {
      return setProblem(/** @type {Error} */ (error).message);
    }
    setDone(null);
    const answer = await action.run(() => library.apply(body, { tenant }));
    if (answer) setDone(answer);
  };
  if (!isReady) return html`<${Loading} />`;
  return html`<div class="page narrow">
    <header>
      <nav class="crumbs" aria-label="Where you are"><a href=${link("/library", { tenant })}>Library</a></nav>
      <h1>Apply several definitions</h1>
      <p class="sub">All of them become active together, or none does. The same as <code>loomlog defs apply FILE</code>.</p>
    </header>
    <form class="card" onSubmit=${(event) => (event.preventDefault(), save())}>
      <div class="inside fields">
        <${Field} label="Definitions" value=${text} onInput=${(next) => (setText(next), setProblem(""))} rows=${22} code error=${problem} hint="YAML or JSON: kind, name and overlay of each; parent_def_id and expect_active may be given." />
        ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
        ${done
          ? html`<div class="note good" role="status"><p>Active now:</p><ul>${done.definitions.map((one) => html`<li key=${one.def_id}><a href=${link(`/library/version/${encodeURIComponent(one.def_id)}`, { tenant })}><bdi>${one.name}</bdi>, version ${one.version}</a></li>`)}</ul></div>`
          : null}
      </div>
      <footer class="form-actions"><${Button} href=${link("/library", { tenant })}>Cancel<//><${Button} kind="primary" type="submit" icon="save" isBusy=${action.isBusy}>Apply all<//></footer>
    </form>
  </div>`;
}
