// What a run asks people, inside of its conversation: a question with its answer, and a call of unknown outcome.
import { html, useContext, useState } from "../../ui.js";
import { runs } from "../../api.js";
import { Button, Chip, Field } from "../../components/controls.js";
import { LongText } from "../../components/json.js";
import { Markdown } from "../../components/markdown.js";
import { ErrorState } from "../../components/states.js";
import { formatDuration, now, toMs } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { printJson } from "../../exact_json.js";
import { useAction } from "../../resource.js";
import { link } from "../../router.js";
import { may, me } from "../../session.js";
import { RowContext } from "./row_views.js";

/** Seconds below which the countdown is shown as urgent. */
const URGENT_S = 60;
const ENDED = { resolved: "answered", declined: "declined", expired: "ran out of time", cancelled: "cancelled" };

/** @param {{row: import("./rows.js").Row}} properties */
export function QuestionCard({ row }) {
  const { ask, answer } = row;
  const { runId, isNow, isLive, reload } = useContext(RowContext);
  const [text, setText] = useState("");
  const action = useAction();
  const options = ask.options ?? [];
  const isOpen = !answer && isNow && isLive;
  const send = async (body, said) => {
    if ((await action.run(() => runs.resolve(runId, ask.interrupt_id, { resolved_by: me.value?.name || me.value?.subject, ...body }))) === false) return;
    toast(said);
    reload();
  };
  return html`<div class=${isOpen ? "card question-card" : "question-card"}>
    <div class="question-text"><${Markdown} text=${ask.question ?? ""} /></div>
    ${ask.context ? html`<div class="soft"><${LongText} text=${typeof ask.context === "string" ? ask.context : printJson(ask.context)} /></div>` : null}
    ${answer
      ? html`<p><${Chip} tone=${answer.status === "resolved" ? "good" : "warn"}>${ENDED[answer.status] ?? answer.status}<//> ${answer.answer ? html`<b><bdi>${answer.answer}</bdi></b>` : null} ${answer.resolved_by ? html`<small class="dim">by <bdi>${answer.resolved_by}</bdi></small>` : null}</p>`
      : isOpen && ask.kind === "approval"
        ? html`<p><a href=${link("/inbox", { run: runId })}>Approve or deny it in the inbox</a> <${Countdown} until=${ask.expires_at} /></p>`
      : isOpen && may("runs:create")
        ? html`
            ${options.length
              ? html`<div class="actions">${options.map((option) => html`<${Button} key=${option} kind="primary" isDisabled=${action.isBusy} onClick=${() => send({ answer: option }, "Answered")}><bdi>${option}</bdi><//>`)}</div>`
              : html`<form class="reply" onSubmit=${(event) => (event.preventDefault(), text.trim() && send({ answer: text.trim() }, "Answered"))}>
                  <${Field} label="Your answer" value=${text} onInput=${setText} rows=${2} /><${Button} kind="primary" type="submit" isBusy=${action.isBusy} isDisabled=${!text.trim()}>Answer<//>
                </form>`}
            <div class="actions"><${Button} kind="quiet" small isDisabled=${action.isBusy} onClick=${() => send({ disposition: "declined" }, "Declined")}>Decline<//><${Countdown} until=${ask.expires_at} /></div>
            ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
          `
        : html`<p class="dim">${isOpen ? html`It waits for an answer; your token may not give one. <${Countdown} until=${ask.expires_at} />` : "Not answered."}</p>`}
  </div>`;
}

function Countdown({ until }) {
  const end = toMs(until);
  if (Number.isNaN(end)) return null;
  const left = end - now.value;
  const isUrgent = left < URGENT_S * 1_000;
  return html`<small class=${isUrgent ? "warn number" : "dim number"} title=${`until ${new Date(end).toLocaleString()}`}>${left > 0 ? `${formatDuration(left < 60_000 ? Math.ceil(left / 1_000) * 1_000 : left)} left` : "its time is over"}</small>`;
}

/** A call during which a process died, and that must not be repeated without asking. @param {{row: import("./rows.js").Row}} properties */
export function OutcomeCard({ row }) {
  const { runId, isNow, isLive, reload } = useContext(RowContext);
  const [result, setResult] = useState("");
  const action = useAction();
  const isOpen = !row.isSettled && isNow && isLive;
  const send = async (body) => {
    if ((await action.run(() => runs.resolveCall(runId, row.call, body))) === false) return;
    toast(body.outcome === "done" ? "Taken as done" : "The call is repeated");
    reload();
  };
  return html`<div class=${isOpen ? "card question-card" : "question-card"}>
    <p><b>What became of the call of <bdi>${row.name || "a tool"}</bdi>?</b> A process died while it was at work, and the tool may not be called twice without asking. ${row.reason}</p>
    ${!isOpen
      ? html`<p class="dim">${row.isSettled ? "It is settled." : "Open."}</p>`
      : may("runs:create")
        ? html`<${Field} label="Result for the model, if it was done" value=${result} onInput=${setResult} rows=${2} />
            <div class="actions"><${Button} kind="primary" isDisabled=${action.isBusy} onClick=${() => send({ outcome: "done", ...(result ? { result } : {}) })}>It was done<//><${Button} isDisabled=${action.isBusy} onClick=${() => send({ outcome: "not_done" })}>It had no effect: repeat it<//></div>
            ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}`
        : html`<p class="dim">Somebody with the scope runs:create has to say it.</p>`}
  </div>`;
}
