// Fan-out: one agent with many prompts, or one prompt many times, started as batches; the results fill in as the runs end.
import { html, signal, useEffect, useMemo, useState } from "../../ui.js";
import { runs, sessions } from "../../api.js";
import { Button, Field, Id } from "../../components/controls.js";
import { ErrorState } from "../../components/states.js";
import { RunStatus } from "../../components/status.js";
import { PlainTable } from "../../components/table.js";
import { Duration, formatShort } from "../../components/time.js";
import { every, useAction } from "../../resource.js";
import { link } from "../../router.js";
import { follow } from "../../stream.js";
import { rowOf, withFrame } from "../runs/rows.js";
import { Advanced } from "./advanced.js";
import { AgentPicker } from "./agents.js";
import { FAN_OUT_MAX, answerOf, bodyOf, curlOf, promptsOf, requestsOf } from "./request.js";
import { SameStart } from "./same.js";

const READ_EVERY_MS = 4_000;
const ANSWERS_AT_ONCE = 4;
/** Frames read to find the answer of a run. */
const FRAMES_MAX = 2_000;

/**
 * What was started last: kept while the person looks at one of its runs and comes back.
 * @type {import("@preact/signals").Signal<{agent: string, startedAt: string, results: {prompt: string, spawn: any, run: any, error: string, answer: string | null}[]} | null>}
 */
const batch = signal(null);

/** @param {{agents: any[], draft: any, set: (changes: any) => void}} properties */
export function FanOut({ agents, draft, set }) {
  const [how, setHow] = useState(/** @type {"lines" | "blocks" | "times"} */ ("lines"));
  const [times, setTimes] = useState("5");
  const [isTried, setTried] = useState(false);
  const action = useAction();
  const prompts = useMemo(() => promptsOf(draft.prompt, how, Number(times)), [draft.prompt, how, times]);
  const { body, problems } = useMemo(() => bodyOf({ ...draft, prompt: "", images: [], session_id: "", agent_id: "", interactive: false }, { needsPrompt: false }), [draft]);
  if (!prompts.length) problems.prompt = how === "times" ? "Say what the agents are to do, and how often." : "Write at least one prompt.";
  if (prompts.length > FAN_OUT_MAX) problems.prompt = `These are ${prompts.length} prompts; one fan-out starts at most ${FAN_OUT_MAX}.`;
  const shown = isTried || prompts.length > FAN_OUT_MAX ? problems : {};
  const spawns = prompts.map((prompt) => ({ ...body, prompt }));
  const send = async () => {
    setTried(true);
    if (action.isBusy || Object.keys(problems).length || !agents.some((one) => one.name === draft.agent)) return;
    await action.run(() => startAll(draft.agent, spawns));
  };
  return html`
    <div class="start-columns">
      <form class="card" onSubmit=${(event) => (event.preventDefault(), send())} onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), send())}>
        <div class="inside fields">
          <${AgentPicker} agents=${agents} value=${draft.agent} onChange=${(agent) => set({ agent })} problem=${shown.agent} />
          <div class="fields two">
            <${Field} label="How they are written" value=${how} onInput=${(/** @type {any} */ value) => setHow(value)} options=${[
              { value: "lines", title: "one on each line" },
              { value: "blocks", title: "separated by an empty line" },
              { value: "times", title: "the same one several times" },
            ]} />
            ${how === "times" ? html`<${Field} label="How often" type="number" min="1" max=${FAN_OUT_MAX} value=${times} onInput=${setTimes} />` : null}
          </div>
          <${Field} label=${how === "times" ? "Prompt" : "Prompts"} rows=${9} value=${draft.prompt} onInput=${(prompt) => set({ prompt })} error=${shown.prompt} hint=${prompts.length ? `${prompts.length} ${prompts.length === 1 ? "run" : "runs"}` : undefined} />
          <${Advanced} draft=${draft} problems=${shown} set=${set} isFanOut />
          ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
          <div class="actions"><${Button} kind="primary" type="submit" icon="play" isBusy=${action.isBusy}>${prompts.length ? `Start ${prompts.length} ${prompts.length === 1 ? "run" : "runs"}` : "Start"}<//><span class="dim wide-only"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span></div>
        </div>
      </form>
      <${SameStart} curl=${curlOf(location.origin, "/v1/runs:batch", { mode: "detach", spawns: requestsOf(spawns)[0] ?? [] })} />
    </div>
    ${batch.value ? html`<${Results} />` : null}
  `;
}

/** Starts all of them; one that is refused has its reason in its row. */
async function startAll(agent, spawns) {
  const startedAt = new Date(Date.now() - 60_000).toISOString();
  batch.value = { agent, startedAt, results: spawns.map((spawn) => ({ prompt: spawn.prompt, spawn, run: null, error: "", answer: null })) };
  await startRows(batch.value.results);
}

/** Starts those again that were refused, for example because too many runs were open. */
async function startAgain() {
  const rows = batch.value?.results.filter((one) => one.error) ?? [];
  change((results) => results.map((one) => (one.error ? { ...one, error: "" } : one)));
  await startRows(batch.value?.results.filter((one) => rows.some((other) => other.spawn === one.spawn)) ?? []);
}

/** @param {any[]} rows sent in requests of 32 */
async function startRows(rows) {
  for (const part of requestsOf(rows)) {
    const answer = await runs.batch({ mode: "detach", spawns: part.map((one) => one.spawn) });
    const results = new Map(part.map((one, at) => [one.spawn, answer.results[at]]));
    change((list) =>
      list.map((one) => {
        const result = results.get(one.spawn);
        if (!result) return one;
        const run = result.run_id ? rowOf(/** @type {any} */ ({ ...result, agent: one.spawn.agent, started_at: new Date().toISOString(), status: "running", position: result.position ?? "" })) : null;
        return { ...one, run, error: result.error ?? (run ? "" : "The server did not say why.") };
      }),
    );
  }
}

function change(act) {
  if (batch.value) batch.value = { ...batch.value, results: act(batch.value.results) };
}

function putRuns(byId, combine) {
  change((results) => results.map((one) => (one.run && byId.has(one.run.run_id) ? { ...one, run: combine(one.run, byId.get(one.run.run_id)) } : one)));
}

function Results() {
  const value = /** @type {any} */ (batch.value);
  const open = value.results.filter((one) => one.run?.live);
  useEffect(() => {
    if (!open.length) return undefined;
    const read = async () => {
      const answer = await runs.list({ agent: value.agent, from: value.startedAt, limit: 500 });
      putRuns(new Map(answer.runs.map((run) => [run.run_id, rowOf(run)])), (_, run) => run);
    };
    const stream = follow(`/v1/runs/stream?agent=${encodeURIComponent(value.agent)}`, {
      whileVisible: true,
      onFrames: (frames) => {
        if (frames.some((frame) => frame.event === "stream_open")) read().catch(() => {});
        for (const frame of frames) if (frame.event === "run_state" || frame.event === "run_change") putRuns(new Map([[frame.data.run_id, frame.data]]), withFrame);
      },
    });
    const stop = every(READ_EVERY_MS, () => read().catch(() => {}));
    return () => {
      stream.stop();
      stop();
    };
  }, [value.startedAt, open.length > 0]);
  useEffect(() => void readAnswers(), [value.results]);
  const refused = value.results.filter((one) => one.error);
  const failed = value.results.filter((one) => one.run?.status === "failed").length;
  const again = useAction();
  return html`<section class="card" aria-label="Results">
    <header><h2>Results</h2><span class="dim" role="status">${value.results.length - open.length - refused.length} of ${value.results.length} have ended${open.length ? `, ${open.length} run or wait` : ""}${failed ? `, ${failed} failed` : ""}${refused.length ? `, ${refused.length} not started` : ""}</span>
      ${refused.length ? html`<${Button} small icon="rotate-ccw" isBusy=${again.isBusy} onClick=${() => again.run(() => startAgain())}>Start ${refused.length === 1 ? "it" : `these ${refused.length}`} again<//>` : null}
      <${Button} small kind="quiet" icon="list" href=${link("/runs", { agent: value.agent, from: value.startedAt })}>In the list of runs<//><${Button} small kind="quiet" icon="x" label="Close the results" onClick=${() => (batch.value = null)} /></header>
    ${again.error ? html`<${ErrorState} error=${again.error} compact />` : null}
    <${PlainTable} label="Results" rows=${value.results} rowKey=${(row) => value.results.indexOf(row)} columns=${[
      { key: "number", title: "#", align: "right", cell: (row) => value.results.indexOf(row) + 1 },
      { key: "status", title: "Status", cell: (row) => (row.run ? html`<${RunStatus} run=${row.run} />` : row.error ? html`<span class="bad">not started</span>` : html`<span class="dim">is being started</span>`) },
      { key: "run", title: "Run", cell: (row) => (row.run ? html`<${Id} id=${row.run.run_id} href=${link(`/runs/${row.run.run_id}`)} short=${8} />` : null) },
      { key: "prompt", title: "Prompt", cell: (row) => html`<span class="one-line" title=${row.prompt}><bdi>${row.prompt}</bdi></span>` },
      { key: "answer", title: "Answer", cell: (row) => html`<span class=${`one-line${row.error || row.run?.error ? " bad" : ""}`} title=${row.error || row.run?.error || row.answer || ""}><bdi>${row.error || row.run?.error || row.answer || ""}</bdi></span>` },
      { key: "tokens", title: "Tokens", align: "right", cell: (row) => (row.run ? formatShort(row.run.input_tokens + row.run.output_tokens) : "") },
      { key: "duration", title: "Duration", align: "right", cell: (row) => (row.run ? html`<${Duration} from=${row.run.started_at} to=${row.run.completed_at} />` : "") },
    ]} />
  </section>`;
}

const asked = new Set();

/** Reads the answers of runs that have completed, a few at once. */
async function readAnswers() {
  for (const one of batch.value?.results ?? []) {
    if (asked.size >= ANSWERS_AT_ONCE) return;
    const run = one.run;
    if (!run || one.answer !== null || run.status !== "completed" || asked.has(run.run_id)) continue;
    asked.add(run.run_id);
    sessions
      .transcript(run.session_id, { limit: FRAMES_MAX })
      .then(
        (answer) => answerOf(answer.events),
        () => "",
      )
      .then((answer) => {
        asked.delete(run.run_id);
        change((results) => results.map((row) => (row.run?.run_id === run.run_id ? { ...row, answer } : row)));
      });
  }
}
