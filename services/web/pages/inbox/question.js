// One open question: who asks, what, how long there is, and the answer by button, key or text.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { runs } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { LongText } from "../../components/json.js";
import { useKeys } from "../../components/keys.js";
import { Markdown } from "../../components/markdown.js";
import { RunRecordLink } from "../../components/record_link.js";
import { ErrorState } from "../../components/states.js";
import { Time, formatDuration, now } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction } from "../../resource.js";
import { link } from "../../router.js";
import { me } from "../../session.js";
import { Address, Form, askedOf } from "./elicitation.js";
import { timeLeft } from "./questions.js";

const KEYS_MAX = 9;
const ANSWER_SHOWN = 60;
/** Time in which an answer given by a key can be taken back. */
const UNDO_MS = 5_000;

/** @param {{question: any, isCurrent: boolean, onCurrent: () => void, onLeft: () => void, canAnswer: boolean}} properties */
export function Question({ question, isCurrent, onCurrent, onLeft, canAnswer }) {
  const [text, setText] = useState("");
  const action = useAction();
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const options = question.options ?? [];
  const asked = askedOf(question);
  const left = timeLeft(question, now.value);
  const close = async (body, what) => {
    const name = me.value?.name || me.value?.subject || "";
    const done = await action.run(() => runs.resolve(question.run_id, question.interrupt_id, { kind: "question", ...(name ? { resolved_by: name } : {}), ...body }));
    if (!done) return;
    toast(html`${what} <a href=${link(`/runs/${question.run_id}`)}>Open the run</a>`);
    onLeft();
  };
  const answer = (value) => close({ answer: value, disposition: "answer" }, html`Answered with “<bdi>${value.length > ANSWER_SHOWN ? `${value.slice(0, ANSWER_SHOWN)}…` : value}</bdi>”.`);
  const decline = () => close({ disposition: "declined" }, "Declined: the run goes on without an answer.");
  const [held, setHeld] = useState(/** @type {{send: () => any, what: string} | null} */ (null));
  const waiting = useRef(/** @type {(() => any) | null} */ (null));
  /** A key is pressed by mistake more easily than a button: what it says is sent in 5 s, or when the question is left, unless it is taken back. */
  const hold = (what, send) => {
    waiting.current = send;
    setHeld({ what, send });
  };
  const undo = () => {
    waiting.current = null;
    setHeld(null);
  };
  useEffect(() => {
    if (!held) return undefined;
    const timer = setTimeout(() => (undo(), held.send()), UNDO_MS);
    return () => clearTimeout(timer);
  }, [held]);
  useEffect(() => () => void waiting.current?.(), []);
  const isOpen = !held && canAnswer && !left?.hasExpired && !action.isBusy;

  /** @type {Record<string, [string, () => void]>} */
  const keys = {};
  if (isCurrent && isOpen) {
    options.slice(0, KEYS_MAX).forEach((option, at) => (keys[String(at + 1)] = [`Answer “${option.slice(0, 40)}”`, () => hold(`“${option.slice(0, ANSWER_SHOWN)}”`, () => answer(option))]));
    if (!options.length) keys.Enter = ["Write the answer", () => box.current?.querySelector("textarea")?.focus()];
    keys.D = ["Decline (Shift and d)", () => hold("that nobody answers", decline)];
  }
  if (held) keys.Escape = ["Take the answer back", undo];
  useKeys("The marked question", keys);
  useEffect(() => {
    // A refusal such as "answered already" leaves the list with the next reading.
    if (action.error) box.current?.scrollIntoView({ block: "nearest" });
  }, [action.error]);

  const declineButton = html`<${Button} small kind="quiet" icon="x" isDisabled=${!isOpen} title="The run is told that nobody answers, and goes on (Shift and d)" onClick=${decline}>Decline${isCurrent ? html` <kbd>D</kbd>` : null}<//>`;
  return html`<article class=${`card question${isCurrent ? " current" : ""}`} data-question=${question.interrupt_id} ref=${box} onClick=${onCurrent} onFocusIn=${onCurrent} aria-label=${`Question of ${question.agent ?? "a run"}`} aria-current=${isCurrent ? "true" : undefined}>
    <header>
      ${question.priority === "high" ? html`<${Chip} tone="bad" icon="zap">urgent<//>` : question.priority === "low" ? html`<${Chip}>can wait<//>` : null}
      <h2><a href=${link(`/runs/${question.run_id}`)}><bdi>${question.agent ?? "a run"}</bdi></a> asks</h2>
      <${Id} id=${question.run_id} short=${8} />
      ${question.user_id ? html`<span class="dim wide-only">for <bdi>${question.user_id}</bdi>${me.value?.is_admin && question.tenant_id ? html` of ${question.tenant_id}` : null}</span>` : null}
      <span class="dim"><${Time} at=${question.created_at} relative /></span>
      <${RunRecordLink} run=${question.run_id} seq=${question.seq} />
      <${Countdown} left=${left} />
    </header>
    <div class="inside fields">
      <div class="ask"><${Markdown} text=${question.question ?? ""} /></div>
      ${asked?.mode === "url" ? html`<${Address} asked=${asked} />` : null}
      ${question.context && !asked ? html`<div class="background soft"><${LongText} text=${question.context} max=${1_200} /></div>` : null}
      ${left?.hasExpired
        ? html`<p class="note warn">The time to answer is over. The run goes on without an answer.</p>`
        : !canAnswer
          ? html`<p class="dim">Your token may read questions, not answer them.</p>`
          : options.length
            ? html`<div class="actions options">${options.map(
                (option, at) => html`<${Button} key=${at} isDisabled=${!isOpen} onClick=${() => answer(option)}><bdi>${option}</bdi>${isCurrent && at < KEYS_MAX ? html` <kbd>${at + 1}</kbd>` : null}<//>`,
              )}<span class="grow"></span>${declineButton}</div>`
            : asked?.mode === "form"
              ? html`<${Form} asked=${asked} isDisabled=${!isOpen} isBusy=${action.isBusy} onAnswer=${answer}>${declineButton}<//>`
              : html`<form onSubmit=${(event) => (event.preventDefault(), text.trim() && isOpen && answer(text.trim()))} onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && text.trim() && isOpen && (event.preventDefault(), answer(text.trim()))}>
                <${Field} label="Answer" rows=${2} value=${text} onInput=${setText} />
                <div class="actions"><${Button} kind="primary" type="submit" icon="send" isBusy=${action.isBusy} isDisabled=${!text.trim()}>Answer<//><span class="dim wide-only"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span><span class="grow"></span>${declineButton}</div>
              </form>`}
      ${held ? html`<p class="note" role="status">In ${UNDO_MS / 1_000} seconds <bdi>${held.what}</bdi> is sent. <${Button} small icon="undo-2" onClick=${undo}>Take it back <kbd>Esc</kbd><//></p>` : null}
      ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    </div>
  </article>`;
}

function Countdown({ left }) {
  if (!left) return null;
  if (left.hasExpired) return html`<${Chip} tone="bad" icon="timer">over<//>`;
  return html`<${Chip} tone=${left.isSoon ? "warn" : ""} icon="timer" title="Then the run goes on without an answer">${formatDuration(left.ms)} left<//>`;
}
