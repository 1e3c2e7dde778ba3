// The slider under a run's header: moves every pane to a moment of the run. A moment is the seq of a record.
import { html, useEffect, useMemo, useRef, useState } from "../../ui.js";
import { Button } from "../../components/controls.js";
import { useKeys } from "../../components/keys.js";
import { formatMoment, formatTime, toMs } from "../../components/time.js";
import { isFailure, marksOf } from "./model.js";

const STEP_MS = 250;
/** Longer runs are played in this many steps. */
const STEPS_MAX = 300;
const MARKS_MAX = 240;

/** @param {{history: import("./history.js").History}} properties */
export function Slider({ history }) {
  const { events, at, setAt, turns, isLive } = history;
  const last = events.length;
  const marks = useMemo(() => marksOf(events, MARKS_MAX), [events]);
  const [isPlaying, setPlaying] = useState(false);
  const place = useRef(0);
  place.current = at ?? last;

  const goTo = (seq) => setAt(seq >= last ? null : Math.max(1, seq));
  const step = (by) => {
    setPlaying(false);
    goTo(place.current + by);
  };
  useKeys("Moments of the run", { "[": ["One record back", () => step(-1)], "]": ["One record on", () => step(1)], "{": ["Back to the turn before", () => step(previousTurn(turns, place.current) - place.current)], "}": ["On to the next turn", () => step(nextTurn(turns, place.current, last) - place.current)], "0": ["Now", () => setAt(null)] });
  useEffect(() => {
    if (!isPlaying) return undefined;
    const by = Math.max(1, Math.ceil(last / STEPS_MAX));
    const timer = setInterval(() => {
      if (place.current + by >= last) setPlaying(false);
      goTo(place.current + by);
    }, STEP_MS);
    return () => clearInterval(timer);
  }, [isPlaying, last]);
  if (last < 2) return null;

  const event = events[(at ?? last) - 1];
  const turn = turnAt(turns, at ?? last);
  const said = event ? `${event.type}${turn ? `, turn ${turn}` : ""}, ${formatTime(event.at)}` : "";
  const play = () => {
    if (!isPlaying && at === null) setAt(1);
    setPlaying(!isPlaying);
  };
  return html`<div class=${at === null ? "moments" : "moments past"}>
    <${Button} kind="quiet" small icon=${isPlaying ? "pause" : "play"} label=${isPlaying ? "Stop playing" : "Play the run record by record"} title=${isPlaying ? "Stop" : "Play record by record"} onClick=${play} />
    <div class="track">
      <div class="marks" aria-hidden="true">${marks.map((mark) => html`<i key=${mark.kind + mark.seq} class=${mark.kind} style=${{ left: `${mark.at * 100}%` }}></i>`)}</div>
      <input type="range" min="1" max=${last} step="1" value=${at ?? last} aria-label="Moment of the run" aria-valuetext=${at === null ? `now, ${said}` : `record ${at} of ${last}, ${said}`}
        onInput=${(change) => (setPlaying(false), goTo(Number(change.currentTarget.value)))} />
    </div>
    <span class="moment-label number">
      ${at === null
        ? html`<span class="dim">${isLive ? "now, live" : "at the end"} · ${last} records</span>`
        : html`<b>${at}</b><span class="dim"> of ${last}</span> <span class=${event && isFailure(event) ? "bad" : "soft"}>${event?.type ?? ""}</span>${turn ? html` <span class="dim">turn ${turn}</span>` : null} <time class="dim" datetime=${event?.at}>${event ? formatMoment(toMs(event.at)) : ""}</time>`}
    </span>
    <span class="now-place">${at === null ? null : html`<${Button} small icon="skip-forward" onClick=${() => (setPlaying(false), setAt(null))}>${isLive ? "Now" : "End"}<//>`}</span>
  </div>`;
}

/** @param {import("./model.js").Turn[]} turns @param {number} seq */
const turnAt = (turns, seq) => turns.findLast((turn) => turn.fromSeq <= seq)?.turn ?? 0;
const previousTurn = (turns, seq) => turns.findLast((turn) => turn.fromSeq < seq)?.fromSeq ?? 1;
const nextTurn = (turns, seq, last) => turns.find((turn) => turn.fromSeq > seq)?.fromSeq ?? last;
