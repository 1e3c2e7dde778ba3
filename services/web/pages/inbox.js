// The inbox: questions that runs ask people, answered by a click or a key; what was answered, and notices.
import { html, useEffect, useMemo, useRef, useState } from "../ui.js";
import { interrupts } from "../api.js";
import { Button, Checkbox, Tabs } from "../components/controls.js";
import { useKeys } from "../components/keys.js";
import { Empty, ErrorState, Loading } from "../components/states.js";
import { waitingQuestions } from "../frame.js";
import { every, onReconnect, usePages } from "../resource.js";
import { here, setQuery } from "../router.js";
import { may } from "../session.js";
import { follow } from "../stream.js";
import { Approval } from "./inbox/approval.js";
import { ClosedQuestion } from "./inbox/closed.js";
import { Question } from "./inbox/question.js";
import { inOrder, nextOf } from "./inbox/questions.js";

const TABS = { waiting: "pending", answered: "resolved,declined,timed_out,cancelled", notices: "delivered" };
const PAGE = 100;
/** Least time between two readings that changes of runs cause. */
const GAP_MS = 2_000;
/** Questions that run out of time are noticed this late at most, should no stream say it. */
const READ_EVERY_MS = 20_000;

export default function Inbox() {
  const { query } = here.value;
  const tab = Object.hasOwn(TABS, query.get("tab") ?? "") ? (query.get("tab") ?? "") : "waiting";
  const run = query.get("run") ?? "";
  return html`<div class="page inbox">
    <header><h1>Inbox</h1>${run ? html`<${Button} small icon="x" onClick=${() => setQuery({ run: "" })}>Only of run ${run.slice(-8)}<//>` : null}</header>
    <${Tabs} label="Questions" selected=${tab} onSelect=${(key) => setQuery({ tab: key === "waiting" ? "" : key })} tabs=${[
      { key: "waiting", title: "Waiting", icon: "inbox", count: waitingQuestions.value ?? undefined },
      { key: "answered", title: "Answered", icon: "check" },
      { key: "notices", title: "Notices", icon: "bell-ring" },
    ]} />
    ${tab === "waiting" ? html`<${Waiting} run=${run} />` : html`<${Closed} key=${tab} tab=${tab} run=${run} />`}
  </div>`;
}

/** All open questions: few enough to be read whole. */
async function readWaiting() {
  const all = [];
  let cursor = "";
  do {
    const answer = await interrupts.list({ status: TABS.waiting, limit: 500, cursor });
    all.push(...answer.interrupts);
    cursor = answer.next ?? "";
  } while (cursor && all.length < 5_000);
  return all;
}

function Waiting({ run }) {
  const [state, setState] = useState(/** @type {{list: any[] | null, error: any}} */ ({ list: null, error: null }));
  const [current, setCurrent] = useState("");
  const [notifies, setNotifies] = useState(typeof Notification !== "undefined" && Notification.permission === "granted");
  const gone = useRef(new Set());
  const before = useRef(/** @type {any[]} */ ([]));
  const box = useRef(/** @type {HTMLElement | null} */ (null));

  useEffect(() => {
    let timer = 0;
    let readAt = 0;
    let isOver = false;
    const read = async () => {
      timer = 0;
      readAt = Date.now();
      try {
        const list = await readWaiting();
        if (isOver) return;
        for (const id of gone.current) if (!list.some((one) => one.interrupt_id === id)) gone.current.delete(id);
        waitingQuestions.value = list.length - gone.current.size;
        setState({ list, error: null });
      } catch (error) {
        if (!isOver) setState((known) => ({ list: known.list, error }));
      }
    };
    const soon = () => (timer ||= setTimeout(read, Math.max(0, readAt + GAP_MS - Date.now())));
    soon();
    const stream = follow("/v1/runs/stream?status=running", {
      whileVisible: true,
      onFrames: (frames) => {
        if (frames.some((frame) => frame.event === "stream_open" || frame.event === "run_change")) soon();
      },
    });
    const stop = every(READ_EVERY_MS, soon);
    const reconnected = onReconnect(soon);
    return () => {
      isOver = true;
      clearTimeout(timer);
      stream.stop();
      stop();
      reconnected();
    };
  }, []);

  const shown = useMemo(() => inOrder((state.list ?? []).filter((one) => !gone.current.has(one.interrupt_id) && (!run || one.run_id === run))), [state.list, run]);
  useEffect(() => {
    setCurrent((id) => nextOf(shown, id, before.current));
    announce(shown, before.current, notifies);
    before.current = shown;
  }, [shown]);

  const move = (step) => {
    const at = shown.findIndex((one) => one.interrupt_id === current);
    const next = shown[Math.max(0, Math.min(shown.length - 1, at + step))];
    if (!next) return;
    setCurrent(next.interrupt_id);
    box.current?.querySelector(`[data-question="${CSS.escape(next.interrupt_id)}"]`)?.scrollIntoView({ block: "nearest" });
  };
  useKeys("Inbox", { j: ["Next question", () => move(1)], k: ["Question before", () => move(-1)], ArrowDown: ["Next question", () => move(1)], ArrowUp: ["Question before", () => move(-1)] });
  const leave = (question) => {
    gone.current.add(question.interrupt_id);
    waitingQuestions.value = Math.max(0, (waitingQuestions.value ?? 1) - 1);
    setState((known) => ({ list: [...(known.list ?? [])], error: known.error }));
  };

  if (!state.list) return state.error ? html`<${ErrorState} error=${state.error} />` : html`<${Loading} rows=${4} label="Loading the questions" />`;
  return html`
    ${state.error && state.error.status !== 0 ? html`<${ErrorState} error=${state.error} compact />` : null}
    ${typeof Notification === "undefined" ? null : html`<div class="bar"><${Checkbox} label="Tell me of new questions while this tab is in the background" checked=${notifies} onChange=${async (wanted) => setNotifies(wanted && (await Notification.requestPermission()) === "granted")} /></div>`}
    ${shown.length
      ? html`<div class="questions" ref=${box}>${shown.map((one) => html`<${one.kind === "approval" ? Approval : Question} key=${one.interrupt_id} question=${one} isCurrent=${one.interrupt_id === current} onCurrent=${() => setCurrent(one.interrupt_id)} onLeft=${() => leave(one)} canAnswer=${may("runs:create")} />`)}</div>`
      : html`<${Empty} icon="inbox" title="No question waits"><p>When an agent asks a person with the tool <code>Interruption</code>, its question appears here by itself.</p><//>`}
  `;
}

/** A notice of the system for questions that have come since the last reading, when the person asked for it. */
function announce(shown, before, notifies) {
  if (!notifies || !before.length || document.visibilityState === "visible") return;
  for (const one of shown) {
    if (before.some((other) => other.interrupt_id === one.interrupt_id)) continue;
    new Notification(`${one.agent ?? "An agent"} asks`, { body: (one.question ?? "").slice(0, 200), tag: one.interrupt_id });
  }
}

function Closed({ tab, run }) {
  const pages = usePages(
    async (cursor, signal) => {
      const answer = await interrupts.list({ status: TABS[tab], limit: PAGE, cursor }, { signal });
      return { rows: answer.interrupts.filter((one) => !run || one.run_id === run), next: answer.next };
    },
    [tab, run],
  );
  if (pages.error && !pages.rows.length) return html`<${ErrorState} error=${pages.error} onRetry=${pages.reload} />`;
  if (!pages.rows.length && !pages.isComplete) return html`<${Loading} rows=${4} label="Loading" />`;
  if (!pages.rows.length)
    return tab === "notices"
      ? html`<${Empty} icon="bell-ring" title="There are no notices"><p>An agent tells a person something without waiting with the tool <code>Interruption</code> and <code>op: notify</code>.</p><//>`
      : html`<${Empty} icon="check" title="Nothing has been answered yet" />`;
  return html`<div class="questions">
    ${pages.rows.map((one) => html`<${ClosedQuestion} key=${one.run_id + one.interrupt_id} question=${one} />`)}
    ${pages.isComplete ? null : html`<p class="actions centered"><${Button} isBusy=${pages.isLoading} onClick=${pages.more}>Show older ones<//></p>`}
  </div>`;
}
