// The foot of a run's page: what is under way, and the field from which a person steers the run or continues its session.
import { html, useComputed, useEffect, useMemo, useRef, useState } from "../../ui.js";
import { runs, seg } from "../../api.js";
import { Button } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { useKeys } from "../../components/keys.js";
import { ErrorState } from "../../components/states.js";
import { formatDuration, now, toMs } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction } from "../../resource.js";
import { navigate } from "../../router.js";
import { may } from "../../session.js";
import { follow } from "../../stream.js";
import { busyWith, waitOf } from "./model.js";

const ROWS_MAX = 10;
/** Texts that were begun, by run: another tab of the page does not lose them. @type {Map<string, string>} */
const drafts = new Map();

/** @param {{history: import("./history.js").History}} properties */
export function Composer({ history }) {
  const { run, runId, isLive, reload, at, setAt } = history;
  const [text, setText] = useState(drafts.get(runId) ?? "");
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const action = useAction();
  useKeys("Run", { s: ["Write to the run", () => field.current?.focus()] });
  useEffect(() => void drafts.set(runId, text), [text]);
  useEffect(() => {
    const area = field.current;
    if (!area) return;
    area.style.height = "auto";
    area.style.height = `${Math.min(area.scrollHeight + 2, ROWS_MAX * 21)}px`;
  }, [text]);
  if (at !== null) {
    return html`<footer class="composer"><p class="busy"><${Icon} name="rewind" /> You see the run as it was at record ${at}. <${Button} small onClick=${() => setAt(null)}>${isLive ? "Back to now" : "Back to its end"}<//></p></footer>`;
  }
  if (!may("runs:create")) return isLive ? html`<footer class="composer"><${Busy} history=${history} /></footer>` : null;

  const send = async () => {
    const said = text.trim();
    if (!said || action.isBusy || run.quarantined) return;
    const done = await action.run(async () => {
      if (isLive) return runs.input(runId, { text: said, source: "webui" });
      return { next: await continueSession(run, said) };
    });
    if (done === false) return void field.current?.focus();
    setText("");
    drafts.delete(runId);
    if (done.next) {
      toast("The session goes on with this run.");
      navigate(`/runs/${done.next}`);
    } else reload();
    field.current?.focus();
  };
  const typed = (event) => {
    if (event.key === "Escape") return field.current?.blur();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  };
  const canStop = isLive && run.interactive && !run.parked && !run.paused;
  const stop = async () => (await action.run(() => runs.cancelTurn(runId, {}))) !== false && (toast("The turn is stopped."), reload());
  const [placeholder, verb] = run.quarantined ? ["The run is quarantined: release it before you write to it", "Send"] : !isLive ? ["Continue the session: the next run of the same agent begins with this text", "Continue"] : run.parked ? ["The run waits for your next message", "Send"] : ["Steer: this text joins before the next model call", "Steer"];
  return html`<footer class="composer">
    <${Busy} history=${history} />
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    <div class="write">
      <textarea ref=${field} rows="1" aria-label=${placeholder} placeholder=${placeholder} value=${text} onInput=${(event) => setText(event.currentTarget.value)} onKeyDown=${typed}></textarea>
      ${canStop ? html`<${Button} icon="square" title="Stop the current turn; the run then waits for input" isDisabled=${action.isBusy} onClick=${stop}>Stop turn<//>` : null}
      <${Button} kind="primary" icon="send" title="Enter sends, Shift+Enter begins a new line" isBusy=${action.isBusy} isDisabled=${!text.trim() || run.quarantined} onClick=${send}>${verb}<//>
    </div>
  </footer>`;
}

/** What the run does just now, and for how long. */
function Busy({ history }) {
  const { run, turns, events, isLive, isStreamOpen, preview } = history;
  const wait = useMemo(() => waitOf(run, events), [run, events]);
  // A token changes the preview, but not this: only its beginning and its end do.
  const answering = useComputed(() => (preview.value.text ? "the model answers" : preview.value.thinking ? "the model thinks" : ""));
  if (!isLive) return null;
  if (run.quarantined) return null;
  const since = toMs(events[events.length - 1]?.at);
  const work = answering.value || busyWith(turns) || "at work";
  const busy = !wait ? work : wait.word.startsWith("pauses") ? `${work}; ${wait.word}` : wait.word === "paused" ? "paused" : `waits for ${wait.word}`;
  const isAtWork = !wait || wait.word.startsWith("pauses");
  return html`<p class="busy" role="status">
    <${Icon} name=${isAtWork ? "loader-circle" : wait.icon} spin=${isAtWork} size=${14} /> <bdi>${busy}</bdi>
    ${Number.isNaN(since) || now.value - since < 2_000 ? null : html`<small class="dim number" aria-hidden="true">${formatDuration(now.value - since)}</small>`}
    ${isStreamOpen ? null : html`<small class="warn">the stream is being opened again</small>`}
  </p>`;
}

/**
 * Starts the next run of a session; the stream that answers tells its id, and the run goes on without its reader.
 * @param {any} run @param {string} prompt @returns {Promise<string>} id of the run
 */
function continueSession(run, prompt) {
  return new Promise((resolve, reject) => {
    const stream = follow(`/v1/sessions/${seg(run.session_id)}/messages?ids=1`, {
      method: "POST",
      body: { prompt, ...(run.interactive ? { interactive: true } : {}) },
      onFrames: (frames) => {
        const id = frames.find((frame) => frame.data?.run_id)?.data.run_id;
        if (!id) return;
        resolve(id);
        stream.stop();
      },
      onState: (state, error) => state === "ended" && reject(error ?? new Error("The server closed the answer before it named the run.")),
    });
  });
}
