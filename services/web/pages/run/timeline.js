// The run on a time axis: lanes of bars, zoom, the critical path, and the records behind each bar. Only what is in view is drawn.
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../ui.js";
import { here, setQuery } from "../../router.js";
import { Button } from "../../components/controls.js";
import { Empty } from "../../components/states.js";
import { formatDuration } from "../../components/time.js";
import { LANES, criticalPath, formatTick, growingBars, seen, shortenWaits, ticks } from "./bars.js";
import { BarDetail, BarTip, PathSummary } from "./bar_detail.js";
import { viewLink } from "./links.js";
import { Minimap } from "./minimap.js";
import { Strips } from "./strips.js";

const ROW = 24;
const GAP = 2;
const NAMES = { turn: "Turns", model: "Model calls", tool: "Tools", child: "Children", wait: "Waits" };
/** Pixels above and below what is in view that are drawn too. */
const AHEAD = 96;
/** Bars that are elements of their own, with focus and a spoken name; of more, only those wide enough for a text are. */
const ELEMENTS_MAX = 240;
const TEXT_MIN = 34;
const SPAN_MIN_MS = 5;
const GROWS_EVERY_MS = 500;
/** While nothing is under way but a wait for somebody. */
const WAITS_EVERY_MS = 1_000;

/** @param {{history: import("./history.js").History}} properties */
export default function Timeline({ history }) {
  const events = history.shown;
  const fold = useMemo(growingBars, [history.runId]);
  const line = useMemo(() => fold(events), [fold, events]);
  const isGrowing = history.isLive && history.at === null && !line.isEnded;
  const isWaiting = !line.bars.some((bar) => bar.end === null && bar.lane !== "turn" && bar.lane !== "wait");
  const now = useNow(isGrowing, line.end, isWaiting ? WAITS_EVERY_MS : GROWS_EVERY_MS);
  const path = useMemo(() => criticalPath(line.bars, line.start, now), [line, isGrowing ? Math.floor(now / 2_000) : now]);
  if (!events.length) {
    return history.isComplete
      ? html`<${Empty} icon="activity" title="No records up to this moment">Move the slider to a later one.<//>`
      : html`<div class="state quiet" aria-busy="true"></div>`;
  }
  return html`<${Chart} real=${line} realNow=${now} path=${path} runId=${history.runId} isGrowing=${isGrowing} typeOf=${(seq) => history.events[seq - 1]?.type ?? ""} onLook=${history.setAt} />`;
}

/** The end of what is open: the clock while the run grows, otherwise its last record. */
function useNow(isGrowing, end, everyMs) {
  const [clock, setClock] = useState(Date.now());
  useEffect(() => {
    if (!isGrowing) return undefined;
    setClock(Date.now());
    const timer = setInterval(() => document.visibilityState === "visible" && setClock(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [isGrowing, everyMs]);
  return isGrowing ? Math.max(clock, end) : end;
}

function Chart({ real, realNow, path, runId, isGrowing, typeOf, onLook }) {
  const [wanted, setWanted] = useState(/** @type {boolean | null} */ (null));
  const short = useMemo(() => shortenWaits(real, realNow), [real, realNow]);
  const isShort = short !== null && (wanted ?? short.idleMs > (realNow - real.start) / 2);
  const { line, now } = isShort && short ? short : { line: real, now: realNow };
  const toReal = isShort && short ? short.toReal : (at) => at;
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [size, setSize] = useState({ width: 900, height: 400, top: 0 });
  const [view, setView] = useState(/** @type {{from: number, to: number} | null} */ (null));
  const [hover, setHover] = useState(/** @type {any} */ (null));
  const [focused, setFocused] = useState("");
  const [range, setRange] = useState(/** @type {{from: number, to: number} | null} */ (null));
  const takesFocus = useRef(false);
  const selected = here.value.query.get("bar") ?? "";
  const start = line.start;
  const whole = { from: start, to: Math.max(now, start + SPAN_MIN_MS) + Math.max(1, (now - start) * 0.015) };
  const { from, to } = view ?? whole;
  const msPerPixel = (to - from) / Math.max(1, size.width);
  const lanes = useMemo(() => layOut(line), [line]);

  const zoom = (factor, around = (from + to) / 2) => {
    const span = Math.max(SPAN_MIN_MS, (to - from) * factor);
    if (span >= whole.to - whole.from) return setView(null);
    const left = around - ((around - from) / (to - from)) * span;
    setView(inside({ from: left, to: left + span }, whole));
  };
  const pan = (ms) => view && setView(inside({ from: from + ms, to: to + ms }, whole));

  // The wheel's listener must be able to keep the browser from zooming the page: it cannot be passive.
  const latest = useRef(/** @type {any} */ ({}));
  latest.current = { zoom, pan, from, msPerPixel };
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const plot = () => /** @type {HTMLElement} */ (element.querySelector(".timeline-plot")).getBoundingClientRect();
    const measure = () => setSize({ width: plot().width, height: element.clientHeight, top: element.scrollTop });
    const wheel = (event) => {
      const side = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      const { zoom: byFactor, pan: byMs, from: left, msPerPixel: scale } = latest.current;
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        byFactor(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.012), left + (event.clientX - plot().left) * scale);
      } else if (Math.abs(side) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
        event.preventDefault();
        byMs(side * scale);
      }
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("wheel", wheel, { passive: false });
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("wheel", wheel);
      element.removeEventListener("scroll", measure);
    };
  }, []);
  useLayoutEffect(() => {
    if (!takesFocus.current) return;
    takesFocus.current = false;
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector(`[data-bar="${CSS.escape(focused)}"]`))?.focus();
  });

  const focusOn = (bar) => {
    const end = bar.end ?? now;
    if (end < from || bar.start > to) setView(inside({ from: bar.start - (to - from) / 3, to: bar.start + ((to - from) * 2) / 3 }, whole));
    const place = lanes.find((lane) => lane.lane === bar.lane);
    const top = (place?.top ?? 0) + bar.row * ROW;
    const element = box.current;
    if (element && (top < element.scrollTop || top + 2 * ROW > element.scrollTop + element.clientHeight)) element.scrollTop = Math.max(0, top - element.clientHeight / 2);
    takesFocus.current = true;
    setFocused(bar.id);
  };
  // Zooming by keyboard keeps what has the focus in view.
  const middleOfFocused = () => {
    const bar = line.bars.find((one) => one.id === focused);
    return bar ? Math.max(from, Math.min(to, (Math.max(bar.start, from) + Math.min(bar.end ?? now, to)) / 2)) : (from + to) / 2;
  };
  const select = (bar) => setQuery({ bar: bar.id === selected ? null : bar.id });
  const keys = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const rise = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.shiftKey && step) pan((step * (to - from)) / 5);
    else if (step || rise || event.key === "Home" || event.key === "End") {
      const next = neighbour(line, lanes, focused || selected, event.key, now);
      if (next) focusOn(next);
    } else if (event.key === "+" || event.key === "=") zoom(0.6, middleOfFocused());
    else if (event.key === "-") zoom(1 / 0.6, middleOfFocused());
    else if (event.key === "0") setView(null);
    else if (event.key === "Escape" && selected) setQuery({ bar: null });
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const drag = (event) => beginDrag(event, { left: from, msPerPixel, onRange: setRange, onDone: (chosen) => (setRange(null), chosen.to - chosen.from > SPAN_MIN_MS && setView(inside(chosen, whole))) });

  const chosen = line.bars.find((bar) => bar.id === selected);
  const entry = focused || selected || line.bars[0]?.id;
  const axis = ticks(from - start, to - start, Math.max(2, size.width / 110));
  const x = (ms) => (ms - from) / msPerPixel;
  const choose = (one) => {
    const around = (one.end - one.start) * 0.2 + 2;
    if (one.count > 1) setView(inside({ from: one.start - around, to: one.end + around }, whole));
    else select(one.bar);
  };
  const drawn = inView(lanes, size, { from, to, now, msPerPixel }, focused);
  const strips = drawn.strips.map((strip) => ({ ...strip, isCritical: path.ids.has(strip.one.bar.id), isSelected: strip.one.bar.id === selected }));
  return html`<div class="timeline">
    <div class="timeline-head">
      <${PathSummary} path=${path} total=${realNow - real.start} />
      <div class="actions">
        ${short ? html`<button type="button" class="button small" aria-pressed=${isShort} title="Draw long waits and pauses short, so that the rest can be seen" onClick=${() => (setView(null), setWanted(!isShort))}>Shorten waits</button>` : null}
        <${Button} small label="Zoom out" title="Zoom out (-)" isDisabled=${!view} onClick=${() => zoom(1 / 0.6)}>−<//>
        <${Button} small label="Zoom in" title="Zoom in (+, or the wheel with Ctrl, or drag a range)" onClick=${() => zoom(0.6)}>+<//>
        <${Button} small title="Show the whole run (0)" isDisabled=${!view} onClick=${() => setView(null)}>Fit<//>
      </div>
    </div>
    <${Minimap} line=${line} now=${now} whole=${whole} view=${view} onView=${(next) => setView(next && inside(next, whole))} />
    <div class="timeline-box" ref=${box} onKeyDown=${keys} onPointerLeave=${() => setHover(null)} role="group" aria-label="Bars of the run; arrow keys move between them, Enter shows the records of one">
      <div class="timeline-axis" aria-hidden="true"><span></span><div class="timeline-plot">${axis.marks.map((mark) => html`<i key=${mark} style=${{ transform: `translateX(${x(mark + start)}px)` }}>${formatTick(toReal(mark + start) - start, axis.step)}</i>`)}</div></div>
      <div class="timeline-lanes" style=${{ height: `${lanes.height}px` }} onPointerDown=${drag}>
        <div class="timeline-grid" aria-hidden="true">${axis.marks.map((mark) => html`<i key=${mark} style=${{ transform: `translateX(${x(mark + start)}px)` }}></i>`)}
          ${range ? html`<b class="timeline-range" style=${{ transform: `translateX(${x(range.from)}px)`, width: `${(range.to - range.from) / msPerPixel}px` }}><span>${formatDuration(toReal(range.to) - toReal(range.from))}</span></b>` : null}
        </div>
        <${Marks} marks=${line.marks} from=${from} to=${to} x=${x} msPerPixel=${msPerPixel} runId=${runId} onHover=${setHover} />
        <${Strips} strips=${strips} width=${size.width} top=${Math.max(0, size.top - AHEAD)} height=${size.height + 2 * AHEAD} onHover=${setHover} onChoose=${choose} />
        ${lanes.map((lane) => html`<div class="timeline-lane" key=${lane.lane} style=${{ top: `${lane.top}px`, height: `${lane.rows.length * ROW}px` }} role="group" aria-label=${NAMES[lane.lane]}>
          <div class="timeline-name">${NAMES[lane.lane]}${lane.rows.length > 1 ? html` <small>${lane.rows.length} at once</small>` : null}</div>
          <div class="timeline-rows">
            ${drawn.blocks.filter((block) => block.lane === lane.lane).map(({ one, x: left, y, width }) => html`<${Block} key=${one.bar.id} one=${one} left=${left} top=${y - lane.top} width=${width} realNow=${realNow} isCritical=${path.ids.has(one.bar.id)} isSelected=${one.bar.id === selected}
              isEntry=${one.bar.id === entry} onClick=${() => choose(one)} onHover=${setHover} onFocus=${() => setFocused(one.bar.id)} />`)}
          </div>
        </div>`)}
      </div>
      ${hover ? html`<${BarTip} of=${hover} start=${real.start} now=${realNow} />` : null}
    </div>
    ${chosen ? html`<${BarDetail} bar=${chosen} now=${realNow} start=${real.start} runId=${runId} typeOf=${typeOf} onLook=${onLook} onClose=${() => setQuery({ bar: null })} />` : html`<p class="hint timeline-hint">${isGrowing ? "Grows while the run goes on. " : ""}Choose a bar to see its records. Ctrl and the wheel zoom, dragging chooses a range, arrow keys move between bars. Outlined bars are the critical path: what the run's duration is made of.</p>`}
  </div>`;
}

function Block({ one, left, width, top, realNow, isCritical, isSelected, isEntry, onClick, onHover, onFocus }) {
  const { bar, count } = one;
  const times = bar.real ?? bar;
  const ms = (times.end ?? realNow) - times.start;
  const title = count > 1 ? `${count} bars, one of them ${bar.title}` : `${bar.title}, ${formatDuration(ms)}${bar.end === null ? " so far" : ""}${bar.note ? `, ${bar.note}` : ""}`;
  const isOpen = `${bar.end === null ? " open" : ""}${bar.real && ms > 4 * (one.end - one.start) ? " shortened" : ""}`;
  const leadWidth = count === 1 && ms > 0 ? Math.min(width, (bar.leadMs / ms) * width) : 0;
  const show = (event) => onHover({ bar, count, x: event.clientX, y: event.clientY });
  return html`<button type="button" class=${`block-bar ${bar.lane}${isCritical ? " critical" : ""}${isSelected ? " selected" : ""}${isOpen}`} data-bar=${bar.id} tabindex=${isEntry ? 0 : -1} aria-label=${title} aria-pressed=${isSelected}
    style=${{ transform: `translate(${left}px, ${top}px)`, width: `${width}px`, "--tone": `var(--${bar.tone})` }} onClick=${onClick} onPointerMove=${show} onPointerLeave=${() => onHover(null)}
    onFocus=${(event) => (onFocus(), event.currentTarget.matches(":focus-visible") && onHover({ bar, count, element: event.currentTarget }))} onBlur=${() => onHover(null)}>
    ${leadWidth > 1 ? html`<i class="lead" style=${{ width: `${leadWidth}px` }}></i>` : null}${width > TEXT_MIN ? html`<span><bdi>${count > 1 ? `${count} bars` : bar.title}</bdi>${width > 130 || (width > 70 && isOpen.includes("shortened")) ? html` <small>${formatDuration(ms)}</small>` : null}</span>` : null}
  </button>`;
}

/** Moments: takeovers, limits, fallbacks, inputs, the end. Those on one spot become one sign. */
function Marks({ marks, from, to, x, msPerPixel, runId, onHover }) {
  const shown = [];
  for (const mark of marks) {
    if (mark.at < from || mark.at > to) continue;
    const last = shown[shown.length - 1];
    if (last && mark.at - last.at < 10 * msPerPixel) last.all.push(mark);
    else shown.push({ at: mark.at, all: [mark] });
  }
  return html`<div class="timeline-lane" role="group" aria-label="Moments" style=${{ height: `${ROW}px` }}><div class="timeline-name">Moments</div><div class="timeline-rows">
    ${shown.map(({ at, all }) => {
      const first = all.find((mark) => mark.tone === "bad") ?? all.find((mark) => mark.kind === "takeover") ?? all[0];
      const title = all.map((mark) => mark.title).join("\n");
      return html`<a key=${`${at}.${all[0].seq}`} class=${`moment ${first.kind}`} href=${viewLink(runId, "events", { seq: first.seq })} aria-label=${title} style=${{ transform: `translate(${x(at) - 6}px, 5px)`, "--tone": `var(--${first.tone})` }}
        onPointerMove=${(event) => onHover({ marks: all, x: event.clientX, y: event.clientY })} onPointerLeave=${() => onHover(null)} onFocus=${(event) => onHover({ marks: all, element: event.currentTarget })} onBlur=${() => onHover(null)}></a>
        ${first.kind === "takeover" ? html`<i class="takeover" key=${`l${at}`} style=${{ transform: `translateX(${x(at)}px)` }}></i>` : null}`;
    })}
  </div></div>`;
}

/** The bars in view, with their places: those with a text as elements, narrow ones of a crowd as strips. */
function inView(lanes, size, { from, to, now, msPerPixel }, focused) {
  const all = [];
  for (const { lane, rows, top } of lanes) {
    const first = Math.max(0, Math.floor((size.top - AHEAD - top) / ROW));
    const last = Math.min(rows.length, Math.ceil((size.top + size.height + AHEAD - top) / ROW));
    for (let at = first; at < last; at += 1) {
      for (const one of seen(rows[at], from, to, now, msPerPixel, focused)) {
        const x = Math.max(-4, (one.start - from) / msPerPixel);
        const width = Math.max(2, Math.min(size.width + 4, (one.end - from) / msPerPixel) - x);
        all.push({ lane, one, x, y: top + at * ROW, width });
      }
    }
  }
  if (all.length <= ELEMENTS_MAX) return { blocks: all, strips: [] };
  const isBlock = (shape) => shape.width >= TEXT_MIN || shape.one.bar.id === focused;
  return { blocks: all.filter(isBlock), strips: all.filter((shape) => !isBlock(shape)) };
}

/** Lanes that have bars, each with the place of its first row. */
function layOut(line) {
  let top = ROW;
  const lanes = LANES.filter((lane) => line.rows[lane].length).map((lane) => {
    const rows = line.rows[lane];
    const one = { lane, rows, top };
    top += rows.length * ROW + GAP * 3;
    return one;
  });
  return Object.assign(lanes, { height: top });
}

const inside = (wanted, whole) => {
  const span = Math.min(Math.max(SPAN_MIN_MS, wanted.to - wanted.from), whole.to - whole.from);
  const from = Math.max(whole.from, Math.min(wanted.from, whole.to - span));
  return { from, to: from + span };
};

/** The bar that a key leads to: the next of its lane by time, or the nearest of the row above or below. */
function neighbour(line, lanes, id, key, now) {
  const current = line.bars.find((bar) => bar.id === id);
  if (!current) return line.bars[0];
  const same = line.bars.filter((bar) => bar.lane === current.lane);
  if (key === "Home") return same[0];
  if (key === "End") return same[same.length - 1];
  if (key === "ArrowRight" || key === "ArrowLeft") return same[same.indexOf(current) + (key === "ArrowRight" ? 1 : -1)];
  const rows = lanes.flatMap((lane) => lane.rows);
  const at = rows.findIndex((row) => row.includes(current)) + (key === "ArrowDown" ? 1 : -1);
  const middle = (current.start + (current.end ?? now)) / 2;
  const away = (bar) => Math.max(bar.start - middle, middle - (bar.end ?? now), 0);
  return rows[at]?.reduce((best, bar) => (away(bar) < away(best) ? bar : best));
}

/** A range that is drawn with the pointer; a click without a way is left to what is under it. */
function beginDrag(event, { left, msPerPixel, onRange, onDone }) {
  if (event.button !== 0 || event.pointerType === "touch") return;
  const lanes = event.currentTarget;
  const zero = lanes.querySelector(".timeline-grid").getBoundingClientRect().left;
  const first = event.clientX;
  let range = /** @type {{from: number, to: number} | null} */ (null);
  const at = (x) => left + (x - zero) * msPerPixel;
  const move = (next) => {
    if (!range && Math.abs(next.clientX - first) < 6) return;
    range = { from: at(Math.min(first, next.clientX)), to: at(Math.max(first, next.clientX)) };
    onRange(range);
  };
  const up = () => {
    removeEventListener("pointermove", move);
    removeEventListener("pointerup", up);
    removeEventListener("pointercancel", up);
    if (!range) return;
    // The click that follows belongs to the drag, not to the bar under the pointer.
    const swallow = (click) => (click.stopPropagation(), click.preventDefault());
    addEventListener("click", swallow, { capture: true, once: true });
    setTimeout(() => removeEventListener("click", swallow, { capture: true }), 0);
    onDone(range);
  };
  addEventListener("pointermove", move);
  addEventListener("pointerup", up);
  addEventListener("pointercancel", up);
}
