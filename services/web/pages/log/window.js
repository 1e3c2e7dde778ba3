// Which records of a partition a page holds: a window of offsets that grows to both sides by bounded reads. Pure.

/** Offsets of one step back without a filter, and with one: most records are passed over then. */
const SPAN = 200;
const SPAN_FILTERED = 5_000;
const LIMIT = 200;
const LIMIT_FILTERED = 500;
/** Steps without a matching record after which a person is asked whether to go on. */
const EMPTY_STEPS_MAX = 4;
/** Reads of one step: more matches than one answer takes. A step that needs more is made smaller: answers are bounded by bytes too. */
const READS_MAX = 12;
const SMALLER = 10;
/** Records kept while new ones come in; the oldest are let go. */
export const ROWS_MAX = 20_000;

/**
 * @typedef {{rows: any[], first: number, next: number, cursor: string, beginning: number, end: number, isAtEnd: boolean, emptySteps: number, emptyBack: number}} Window
 *   rows: records from the offset `first` to before `next`, those that fit the filter. cursor: of the following page.
 *   beginning and end: what the partition holds. emptySteps, emptyBack: steps without a match, forwards and back.
 * @typedef {(query: Record<string, any>) => Promise<any>} Read one page of GET /v1/_log/topics/{topic}/{partition}
 * @typedef {{type?: string, run_id?: string}} Filter
 */

/** @param {Filter} filter */
const isFiltered = (filter) => Boolean(filter.type || filter.run_id);
const limitOf = (filter) => (isFiltered(filter) ? LIMIT_FILTERED : LIMIT);
const spanOf = (filter) => (isFiltered(filter) ? SPAN_FILTERED : SPAN);

/**
 * The first window: from an offset or a time on, or the newest records.
 * @param {Read} read @param {string} from @param {Filter} filter @returns {Promise<Window>}
 */
export async function openWindow(read, from, filter) {
  let tail = spanOf(filter);
  let page = await read({ ...filter, limit: limitOf(filter), ...(from ? { from } : { tail }) });
  // Large records: as many offsets as one answer takes are enough.
  if (!from && page.next && !isFiltered(filter)) {
    tail = Math.max(1, page.next_offset - Math.max(page.beginning_offset, page.end_offset - tail));
    page = await read({ limit: limitOf(filter), tail });
  }
  const { beginning_offset: beginning } = page;
  const clamp = (offset) => Math.max(beginning, Math.min(offset, page.end_offset));
  // Where a time begins is not said: records that do not fit the filter may be read a second time.
  const first = !from ? clamp(page.end_offset - tail) : /^\d+$/.test(from) ? clamp(Number(from)) : (page.records[0]?.offset ?? page.next_offset);
  const rows = [...page.records];
  // The newest records are wanted up to the end, however many pages they are.
  for (let reads = 1; !from && page.next && reads < READS_MAX; reads += 1) {
    page = await read({ ...filter, limit: limitOf(filter), cursor: page.next });
    rows.push(...page.records);
  }
  return { rows, first, next: page.next_offset, cursor: page.next ?? "", beginning, end: page.end_offset, isAtEnd: !page.next, emptySteps: 0, emptyBack: 0 };
}

/** The window with the page after it. @param {Read} read @param {Window} window @param {Filter} filter @returns {Promise<Window>} */
export async function readOn(read, window, filter) {
  const page = await read({ ...filter, limit: limitOf(filter), ...(window.cursor ? { cursor: window.cursor } : { from: window.next }) });
  const known = window.rows.at(-1)?.offset ?? -1;
  let rows = [...window.rows, ...page.records.filter((record) => record.offset > known)];
  let { first } = window;
  if (rows.length > ROWS_MAX) {
    rows = rows.slice(-ROWS_MAX);
    first = rows[0].offset;
  }
  return {
    ...window, rows, first, next: page.next_offset, cursor: page.next ?? "", beginning: page.beginning_offset, end: page.end_offset, isAtEnd: !page.next,
    emptySteps: page.records.length || !page.next ? 0 : window.emptySteps + 1,
  };
}

/**
 * The window with records before it: some steps back until one has a match, or EMPTY_STEPS_MAX steps had none.
 * @param {Read} read @param {Window} window @param {Filter} filter @returns {Promise<Window>}
 */
export async function readBack(read, window, filter) {
  let { first, beginning, end } = window;
  let span = spanOf(filter);
  for (let steps = 0; first > beginning && steps < EMPTY_STEPS_MAX; steps += 1) {
    const start = Math.max(beginning, first - span);
    let reads = 0;
    /** @type {any[]} */
    const before = [];
    let cursor = "";
    let reached = start;
    do {
      const page = await read({ ...filter, limit: limitOf(filter), ...(cursor ? { cursor } : { from: start }) });
      reads += 1;
      beginning = page.beginning_offset;
      end = page.end_offset;
      reached = page.next_offset;
      before.push(...page.records.filter((record) => record.offset < first));
      cursor = page.next ?? "";
    } while (cursor && reached < first && reads < READS_MAX);
    // A step that was not read to its end would leave a gap.
    if (cursor && reached < first) {
      span = Math.ceil(Math.min(span, first - start) / SMALLER);
      steps -= 1;
      continue;
    }
    first = start;
    if (before.length) return { ...window, rows: [...before, ...window.rows], first, beginning, end, emptyBack: 0 };
  }
  return { ...window, first, beginning, end, emptyBack: window.emptyBack + 1 };
}

/** Whether reading on by itself has to be confirmed. @param {Window} window */
export const hasPaused = (window) => window.emptySteps >= EMPTY_STEPS_MAX;
