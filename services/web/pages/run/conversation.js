// What was said and done in a run, row by row; the turn in progress at its end. Long runs: rows are made in groups, and only
// the groups near the view are in the document.
import { createContext, html, useContext, useEffect, useMemo, useRef, useState } from "../../ui.js";
import { Button } from "../../components/controls.js";
import { Empty, Loading } from "../../components/states.js";
import { Icon } from "../../components/icon.js";
import { LongText } from "../../components/json.js";
import { PreviewRow, RowContext, RowView } from "./row_views.js";
import { groupsOf, pendingInputs, rowsOf } from "./rows.js";

const GROUP_ROWS = 10;
const ROW_HEIGHT = 46;
/** Groups this near to the view are made. */
const NEAR = "1200px 0px";
const BOTTOM_PX = 40;

/** Tells a group when it comes near to the view. */
const NearContext = createContext(/** @type {(element: Element, onChange: (isNear: boolean) => void) => () => void} */ (() => () => {}));

/** @param {{history: import("./history.js").History}} properties */
export default function Conversation({ history }) {
  const { runId, run, shownFrames, shown, at, isLive, isComplete, preview, reload } = history;
  const made = useRef({ rows: /** @type {import("./rows.js").Row[]} */ ([]), groups: /** @type {import("./rows.js").Row[][]} */ ([]) });
  const groups = useMemo(() => {
    const rows = rowsOf(shownFrames, shown, made.current.rows);
    made.current = { rows, groups: groupsOf(rows, made.current.groups, GROUP_ROWS) };
    return made.current.groups;
  }, [shownFrames, shown]);
  const pending = useMemo(() => (isLive && at === null ? pendingInputs(shown) : []), [shown, isLive, at]);
  const opened = useRef(new Map()).current;
  const isNow = at === null;
  const context = useMemo(() => ({ runId, opened, isNow, isLive, reload }), [runId, isNow, isLive]);

  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const { isAway, jump } = useStickyBottom(box, run ? isLive || at !== null : null, at);
  const observe = useNear(box);

  if (!groups.length && !isComplete && !history.error) return html`<div class="conversation"><${Loading} rows=${8} label="Loading the conversation" /></div>`;
  if (!groups.length && isComplete) return html`<${Empty} icon="message-square" title="Nothing was said yet">${isLive ? "The run has begun; its first turn appears here." : "This run has no conversation."}<//>`;
  return html`<${RowContext.Provider} value=${context}><${NearContext.Provider} value=${observe}>
    <h2 class="spoken">Conversation</h2>
    <div class="conversation-frame">
      <div class="conversation" ref=${box} tabindex="0" role="region" aria-label="Conversation">
        <div class="turn-rows">
          ${groups.map((rows, number) => html`<${Group} key=${number} rows=${rows} isFirstSeen=${number === 0 || number === groups.length - 1} />`)}
          ${isNow ? html`<${PreviewRow} preview=${preview} />` : null}
          ${pending.map((row) => html`<div class="turn-row is-input is-pending" key=${row.key}><span class="clock">queued</span><span class="what"><${Icon} name="user" size=${14} /><span>user</span></span><div class="said"><${LongText} text=${row.text} /> <small class="dim">joins before the next model call</small></div></div>`)}
        </div>
      </div>
      ${isAway ? html`<div class="jump-newest"><${Button} small icon="arrow-down" onClick=${jump}>${at !== null ? "Jump to this moment" : isLive ? "Jump to the newest" : "Jump to the end"}<//></div>` : null}
    </div>
  <//><//>`;
}

/** Rows that are made when they come near to the view; until then, and afterwards, a box of their height. */
function Group({ rows, isFirstSeen }) {
  const observe = useContext(NearContext);
  const element = useRef(/** @type {HTMLDivElement | null} */ (null));
  const height = useRef(rows.length * ROW_HEIGHT);
  const [isNear, setNear] = useState(isFirstSeen);
  useEffect(() => {
    const box = /** @type {HTMLDivElement} */ (element.current);
    return observe(box, (near) => {
      if (!near && box.contains(document.activeElement)) return;
      if (!near && box.childElementCount) height.current = box.offsetHeight;
      setNear(near);
    });
  }, [observe]);
  const views = useMemo(() => (isNear ? rows.map((row) => html`<${RowView} key=${row.key} row=${row} />`) : null), [rows, isNear]);
  return html`<div class="turn-group" ref=${element} style=${isNear ? {} : { height: `${height.current}px` }}>${views}</div>`;
}

/** @param {{current: HTMLElement | null}} box */
function useNear(box) {
  const known = useRef(/** @type {Map<Element, (isNear: boolean) => void>} */ (new Map())).current;
  const observer = useRef(/** @type {IntersectionObserver | null} */ (null));
  useEffect(() => () => (observer.current?.disconnect(), (observer.current = null)), []);
  return useMemo(
    () => (element, onChange) => {
      // Effects of groups run before those of their pane, so the observer is made by the first of them.
      observer.current ??= new IntersectionObserver((entries) => entries.forEach((entry) => known.get(entry.target)?.(entry.isIntersecting)), { root: box.current, rootMargin: NEAR });
      known.set(element, onChange);
      observer.current.observe(element);
      return () => {
        known.delete(element);
        observer.current?.unobserve(element);
      };
    },
    [],
  );
}

/**
 * Keeps the box at its end while it grows, until the person scrolls up.
 * @param {{current: HTMLElement | null}} box @param {boolean | null} follows whether it begins at its end; null while unknown @param {number | null} at
 */
function useStickyBottom(box, follows, at) {
  const sticks = useRef(false);
  const isDecided = useRef(false);
  const [isAway, setAway] = useState(false);
  const jump = () => {
    sticks.current = true;
    setAway(false);
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
    box.current?.focus({ preventScroll: true });
  };
  useEffect(() => {
    if (follows === null) return;
    if (!isDecided.current || at !== null) sticks.current = follows;
    isDecided.current = true;
    if (sticks.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [follows, at, box.current]);
  useEffect(() => {
    const element = box.current;
    const inside = element?.firstElementChild;
    if (!element || !inside) return undefined;
    let top = element.scrollTop;
    const scrolled = () => {
      const isAtEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - BOTTOM_PX;
      if (isAtEnd) sticks.current = true;
      else if (element.scrollTop < top) sticks.current = false;
      top = element.scrollTop;
      setAway(!isAtEnd && !sticks.current);
    };
    const observer = new ResizeObserver(() => {
      if (sticks.current) element.scrollTop = element.scrollHeight;
      scrolled();
    });
    observer.observe(inside);
    observer.observe(element);
    element.addEventListener("scroll", scrolled, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", scrolled);
    };
  }, [box.current]);
  return { isAway, jump };
}
