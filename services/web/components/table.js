// A table of any number of rows: only what is in view is in the document; the next page is read near the end.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { Icon } from "./icon.js";
import { useKeys } from "./keys.js";
import { Loading } from "./states.js";

const OVERSCAN = 12;
/** Height of the heading, which covers the first rows. */
const HEAD = 34;
/** Rows before the end at which the next page is read. */
const AHEAD = 36;
/** Browsers lose precision above some 30 million pixels. */
const HEIGHT_MAX = 16_000_000;

/**
 * @template T
 * @typedef {{key: string, title: any, cell: (row: T, at: number) => any, width?: string, align?: "right", sort?: (row: T) => any, hidden?: boolean}} Column
 *   width: a CSS grid track such as "8rem", "minmax(8rem, 1fr)". hidden: leave it out (for narrow windows use CSS class "wide-only" in `cell`).
 */

/**
 * Rows of one height in a scrolling box, used with the keyboard: j/k or arrows move, Enter opens, x selects, space scrolls.
 * @template T
 * @param {{
 *   columns: Column<T>[],
 *   rows: T[],
 *   rowKey: (row: T) => string,
 *   href?: (row: T) => string,
 *   onOpen?: (row: T) => void,
 *   onEnd?: () => void,
 *   isComplete?: boolean,
 *   isLoading?: boolean,
 *   rowHeight?: number,
 *   label: string,
 *   selection?: Set<string>,
 *   onSelect?: (selection: Set<string>) => void,
 *   empty?: any,
 *   rowClass?: (row: T) => string,
 *   keys?: boolean,
 *   height?: string,
 *   stickToEnd?: boolean,
 *   boxRef?: {current: HTMLDivElement | null},
 *   markedKey?: string,
 *   onMark?: (row: T) => void,
 * }} properties
 *   href: where Enter and a click on the row lead (the first cell should hold the link for screen readers). onEnd: read the next page.
 *   height: CSS height of the box; default: what the page leaves. stickToEnd: stays at the newest row until the person scrolls up.
 *   boxRef: gets the scrolling box, for a page that has to know what is in view.
 *   markedKey: key of a row that is brought into view and marked when it changes. onMark: the keyboard has come to a row.
 */
export function Table({
  columns, rows, rowKey, href, onOpen, onEnd, isComplete = true, isLoading = false, rowHeight = 36, label, selection, onSelect, empty, rowClass, keys = true, height, stickToEnd = false, boxRef, markedKey = "", onMark,
}) {
  const ownBox = useRef(/** @type {HTMLDivElement | null} */ (null));
  const box = boxRef ?? ownBox;
  const [view, setView] = useState({ top: 0, height: 800 });
  const [marked, setMarked] = useState({ at: -1, key: "" });
  const sticks = useRef(stickToEnd);
  const shown = columns.filter((column) => !column.hidden);
  // The row that the keyboard is at keeps its mark when rows come in before it.
  const active = marked.at < 0 || (rows[marked.at] && rowKey(rows[marked.at]) === marked.key) ? marked.at : rows.findIndex((row) => rowKey(row) === marked.key);
  const setActive = (at) => setMarked({ at, key: rows[at] ? rowKey(rows[at]) : "" });
  const scale = Math.max(1, (rows.length * rowHeight) / HEIGHT_MAX);
  const total = (rows.length * rowHeight) / scale;
  const first = Math.max(0, Math.floor((view.top * scale) / rowHeight) - OVERSCAN);
  const last = Math.min(rows.length, Math.ceil((view.top * scale + view.height) / rowHeight) + OVERSCAN);

  // Instead of an empty table `empty` is shown: the box comes and goes with the rows.
  const hasBox = rows.length > 0 || isLoading || !empty;
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    let frame = 0;
    const measure = () => {
      cancelAnimationFrame(frame);
      frame = requestAnimationFrame(() => {
        sticks.current = stickToEnd && element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
        setView({ top: element.scrollTop, height: element.clientHeight });
      });
    };
    element.addEventListener("scroll", measure, { passive: true });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", measure);
      observer.disconnect();
      cancelAnimationFrame(frame);
    };
  }, [rowHeight, stickToEnd, hasBox]);

  useLayoutEffect(() => {
    if (sticks.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows.length]);

  useEffect(() => {
    if (!isComplete && !isLoading && onEnd && last >= rows.length - AHEAD) onEnd();
  }, [last, rows.length, isComplete, isLoading]);

  const moveTo = (at) => {
    const next = Math.max(0, Math.min(rows.length - 1, at));
    setActive(next);
    const element = box.current;
    if (!element) return;
    const top = (next * rowHeight) / scale;
    const bottom = HEAD + top + rowHeight;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (bottom > element.scrollTop + element.clientHeight) element.scrollTop = bottom - element.clientHeight;
  };
  const step = (at) => {
    moveTo(at);
    const row = rows[Math.max(0, Math.min(rows.length - 1, at))];
    if (row) onMark?.(row);
  };
  const hasRows = rows.length > 0;
  useLayoutEffect(() => {
    if (!markedKey || !hasRows || rowKey(rows[active] ?? rows[0]) === markedKey) return;
    const at = rows.findIndex((row) => rowKey(row) === markedKey);
    if (at < 0) return;
    sticks.current = false;
    const element = box.current;
    const before = element?.scrollTop ?? 0;
    moveTo(at);
    // From far away to the middle, where what is around it can be seen.
    if (element && Math.abs(element.scrollTop - before) > rowHeight) element.scrollTop = (at * rowHeight) / scale - element.clientHeight / 2;
  }, [markedKey, hasRows]);
  const open = (row) => {
    if (onOpen) onOpen(row);
    else if (href) /** @type {HTMLElement | null} */ (box.current?.querySelector(`[data-key="${CSS.escape(rowKey(row))}"] a[href]`))?.click();
  };
  const toggle = (row) => {
    if (!selection || !onSelect) return;
    const next = new Set(selection);
    if (!next.delete(rowKey(row))) next.add(rowKey(row));
    onSelect(next);
  };
  const bindings = {
    j: ["Next row", () => step(active + 1)],
    k: ["Row before", () => step(active - 1)],
    ArrowDown: ["Next row", () => step(active + 1)],
    ArrowUp: ["Row before", () => step(active - 1)],
    Home: ["First row", () => step(0)],
    End: ["Last row read so far", () => step(rows.length - 1)],
    Enter: ["Open the row", () => rows[active] && open(rows[active])],
    ...(selection ? { x: ["Select the row", () => rows[active] && toggle(rows[active])] } : {}),
  };
  useKeys(label, /** @type {any} */ (keys ? bindings : {}));

  const template = [...(selection ? ["2.25rem"] : []), ...shown.map((column) => column.width ?? "minmax(6rem, 1fr)")].join(" ");
  const least = `calc(${[...(selection ? ["2.25rem"] : []), ...shown.map(leastWidth), `${14 * (shown.length + (selection ? 1 : 0) - 1) + 24}px`].join(" + ")})`;
  const areAllSelected = selection && rows.length > 0 && rows.every((row) => selection.has(rowKey(row)));

  // While a person scrolls, rows that stay in view are the same elements as before, which the library then leaves alone.
  const drawn = useRef({ view, inputs: /** @type {any[]} */ ([]), rows: new Map() });
  const latest = useRef(/** @type {any} */ (null));
  latest.current = { setActive, open, toggle };
  const inputs = [columns, selection, rowClass, href, onOpen, isLoading];
  const isScrolled = drawn.current.view !== view && inputs.every((input, at) => input === drawn.current.inputs[at]);
  const known = isScrolled ? drawn.current.rows : new Map();
  drawn.current = { view, inputs, rows: new Map() };
  const draw = (row, at) => {
    const key = rowKey(row);
    const top = scale === 1 ? at * rowHeight : view.top + (at * rowHeight - view.top * scale);
    const before = known.get(key);
    if (before && before.row === row && before.at === at && before.top === top && before.isActive === (at === active)) {
      drawn.current.rows.set(key, before);
      return before.element;
    }
    const element = html`<div
      class=${`row${at === active ? " active" : ""}${href || onOpen ? " opens" : ""} ${rowClass?.(row) ?? ""}`}
      role="row" key=${key} data-key=${key} aria-rowindex=${at + 2} aria-selected=${selection ? selection.has(key) : undefined}
      style=${{ transform: `translateY(${top}px)` }}
      onClick=${(event) => {
        latest.current.setActive(at);
        if (event.target.closest("a, button, input, summary, label")) return;
        if (String(getSelection())) return;
        latest.current.open(row);
      }}
    >
      ${selection ? html`<span role="cell" class="select"><input type="checkbox" aria-label="Select this row" checked=${selection.has(key)} onChange=${() => latest.current.toggle(row)} /></span>` : null}
      ${shown.map((column) => html`<span role="cell" class=${column.align ?? ""} key=${column.key}>${column.cell(row, at)}</span>`)}
    </div>`;
    drawn.current.rows.set(key, { row, at, top, isActive: at === active, element });
    return element;
  };
  if (!rows.length && !isLoading && empty) return empty;
  return html`
    <div class="table" role="table" aria-label=${label} aria-rowcount=${isComplete ? rows.length + 1 : -1} ref=${box} tabindex="0" style=${{ "--columns": template, "--least": least, "--row": `${rowHeight}px`, ...(height ? { height } : {}) }}>
      <div class="row head" role="row" aria-rowindex="1">
        ${selection
          ? html`<span role="columnheader" class="select"><input type="checkbox" aria-label="Select all rows read so far" checked=${areAllSelected} onChange=${() => onSelect?.(areAllSelected ? new Set() : new Set(rows.map(rowKey)))} /></span>`
          : null}
        ${shown.map((column) => html`<span role="columnheader" class=${column.align ?? ""} key=${column.key}>${column.title}</span>`)}
      </div>
      <div class="rows" role="rowgroup" style=${{ height: `${total}px` }}>
        ${rows.slice(first, last).map((row, offset) => draw(row, first + offset))}
      </div>
      ${isLoading && !rows.length ? html`<${Loading} rows=${8} label=${`Loading ${label}`} />` : null}
      ${isLoading && rows.length ? html`<p class="more"><${Icon} name="loader-circle" spin /> reading more</p>` : null}
    </div>
  `;
}

/** The width below which a column does not shrink: rows are grids of their own, and all need the same one. @param {Column<any>} column */
function leastWidth({ width = "minmax(6rem, 1fr)" }) {
  const least = /^(?:minmax\()?\s*([\d.]+(?:rem|px|em|ch))/.exec(width);
  return least ? least[1] : "0px";
}

/**
 * A small plain table, for up to a few hundred rows. Columns as in Table; those with `sort` can be sorted by their heading.
 * @template T
 * @param {{columns: Column<T>[], rows: T[], rowKey?: (row: T) => string, label: string, empty?: any, rowClass?: (row: T) => string}} properties
 */
export function PlainTable({ columns, rows, rowKey, label, empty, rowClass }) {
  const [order, setOrder] = useState({ key: "", up: true });
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [isScrolled, setScrolled] = useState(false);
  const shown = columns.filter((column) => !column.hidden);
  const hasBox = rows.length > 0 || !empty;
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    // Wider than its box and without a control inside, only the box itself can be reached to scroll it with the keyboard.
    const measure = () => setScrolled(element.scrollWidth > element.clientWidth);
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, [hasBox]);
  if (!hasBox) return empty;
  const by = shown.find((column) => column.key === order.key)?.sort;
  const sorted = by ? [...rows].sort((a, b) => (order.up ? 1 : -1) * compare(by(a), by(b))) : rows;
  return html`<div class="plain-table" ref=${box} ...${isScrolled ? { tabindex: 0, role: "group", "aria-label": label } : {}}><table aria-label=${label}>
    <thead><tr>${shown.map((column) => html`<th scope="col" class=${column.align ?? ""} key=${column.key} aria-sort=${order.key === column.key ? (order.up ? "ascending" : "descending") : undefined}>
      ${column.sort ? html`<button class="sort" type="button" onClick=${() => setOrder({ key: column.key, up: order.key === column.key ? !order.up : true })}>${column.title}${order.key === column.key ? html`<${Icon} name=${order.up ? "arrow-up" : "arrow-down"} size=${12} />` : null}</button>` : column.title}
    </th>`)}</tr></thead>
    <tbody>${sorted.map((row, at) => html`<tr key=${rowKey?.(row) ?? at} class=${rowClass?.(row) ?? ""}>${shown.map((column) => html`<td class=${column.align ?? ""} key=${column.key}>${column.cell(row, at)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : 1;
}
