// The list of runs, kept as it is now: pages of GET /v1/runs, and over them the frames of GET /v1/runs/stream.
//
// Rows keep their places. New runs come in on top while the person is there and nothing is selected; else they are held back
// and counted. Frames change rows at once; what frames do not contain (turns and tokens of live runs, tool calls) is read for
// the rows in view, with at most one call every REFRESH_MS.
import { useCallback, useEffect, useMemo, useRef, useState } from "../../ui.js";
import { connection, runs } from "../../api.js";
import { every, usePages } from "../../resource.js";
import { follow } from "../../stream.js";
import { addressOf, apiQueryOf, fits } from "./filter.js";
import { applyFrames, applyReadings, insertRows, rowOf } from "./rows.js";

const FIRST_PAGE = 100;
const FURTHER_PAGE = 500;
const FLUSH_MS = 250;
const REFRESH_MS = 3_000;
const REFRESH_ROWS_MAX = 200;
const COUNTS_MS = 5_000;
/** More are not kept: the list is read anew instead. */
const HELD_MAX = 1_000;

/**
 * @param {import("./filter.js").Filter} filter
 * @param {{isHolding: () => boolean, viewOf: (rows: any[]) => any[]}} view isHolding: whether new rows would move what the person looks at; viewOf: the rows in view
 */
export function useRunList(filter, view) {
  const key = addressOf(filter);
  const since = useMemo(() => Date.now(), [key]);
  const query = useMemo(() => apiQueryOf(filter, since), [key]);
  const pages = usePages(
    async (cursor, signal) => {
      const answer = await runs.list({ ...query, limit: cursor ? FURTHER_PAGE : FIRST_PAGE, cursor }, { signal });
      return { rows: answer.runs.map(rowOf), next: answer.next };
    },
    [key],
    { reloadsOnReconnect: false },
  );
  const [held, setHeld] = useState(/** @type {any[]} */ ([]));
  const [streamState, setStreamState] = useState("connecting");
  const current = useRef(/** @type {any} */ (null));
  current.current = { pages, held, view, filter, query };
  const work = useRef({ frames: /** @type {any[]} */ ([]), dirty: new Set(), isReading: false });

  /** Puts new rows on top, or keeps them until the person wants them. */
  const take = useCallback((unknown) => {
    const { pages: list, view: look, filter: wanted } = current.current;
    const oldest = list.rows[list.rows.length - 1];
    const now = Date.now();
    // What is older than the rows read so far comes with the next page.
    const added = unknown.filter((row) => fits(row, wanted, now) && (list.isComplete || !oldest || row.started_at >= oldest.started_at));
    if (!added.length) return;
    if (look.isHolding()) setHeld((before) => (before.length >= HELD_MAX ? before : insertRows(before, added)));
    else list.replaceRows((rows) => insertRows(rows, added));
  }, []);

  const apply = useCallback((change) => {
    const { pages: list, held: waiting } = current.current;
    const result = change(list.rows);
    if (result.rows !== list.rows) list.replaceRows((rows) => change(rows).rows);
    if (!waiting.length) return take(result.unknown);
    const later = change(waiting);
    if (later.rows !== waiting) setHeld((rows) => change(rows).rows);
    const ids = new Set(waiting.map((row) => row.run_id));
    take(result.unknown.filter((row) => !ids.has(row.run_id)));
  }, []);

  /** Reads the newest page again after the stream was away; what lies between is only found by reading the list anew. */
  const catchUp = useCallback(async () => {
    const { pages: list, query: asked } = current.current;
    if (list.error) return list.error.isTransient ? list.reload() : undefined;
    if (list.isLoading) return void setTimeout(() => catchUp().catch(() => {}), 1_000);
    const answer = await runs.list({ ...asked, limit: FIRST_PAGE });
    const rows = answer.runs.map(rowOf);
    const newest = list.rows[0];
    const hasGap = answer.next && newest && rows.length && rows[rows.length - 1].started_at > newest.started_at;
    if (hasGap && !current.current.view.isHolding()) return list.reload();
    apply((before) => applyReadings(before, rows));
  }, []);

  /** Reads the live rows in view, and those that frames changed in part. */
  const refresh = useCallback(async () => {
    const { pages: list, query: asked, view: look } = current.current;
    const todo = work.current;
    const seen = look.viewOf(list.rows).filter((row) => row.live || todo.dirty.has(row.run_id));
    if (!seen.length || todo.isReading || connection.peek() !== "ok") return;
    todo.isReading = true;
    try {
      const newest = new Date(seen[0].started_at).getTime();
      const status = seen.every((row) => row.live) ? "running" : asked.status ? `running,${asked.status.replace("all", "completed")}` : "";
      const answer = await runs.list({
        ...asked,
        status,
        waiting: "",
        from: seen[seen.length - 1].started_at,
        to: new Date(newest + 1).toISOString(),
        limit: REFRESH_ROWS_MAX,
      });
      const rows = answer.runs.map(rowOf);
      for (const row of rows) if (!row.live || !todo.dirty.has(row.run_id)) todo.dirty.delete(row.run_id);
      apply((before) => ({ rows: applyReadings(before, rows).rows, unknown: [] }));
    } catch {
      // The banner says that the server is away; the next round asks again.
    } finally {
      todo.isReading = false;
    }
  }, []);

  useEffect(() => {
    setHeld([]);
    work.current.frames = [];
    work.current.dirty.clear();
    let timer = 0;
    const flush = () => {
      timer = 0;
      if (current.current.pages.isLoading && !current.current.pages.rows.length) {
        timer = setTimeout(flush, FLUSH_MS);
        return;
      }
      const frames = work.current.frames;
      work.current.frames = [];
      for (const frame of frames) if (frame.status !== "running") work.current.dirty.add(frame.run_id);
      apply((rows) => applyFrames(rows, frames));
    };
    const { agent, user_id, tenant } = filter;
    const asked = new URLSearchParams(Object.entries({ agent, user_id, tenant }).filter(([, value]) => value));
    const subscription = follow(`/v1/runs/stream?${asked}`, {
      whileVisible: true,
      onState: (state) => setStreamState(state),
      onFrames: (frames) => {
        if (frames.some((frame) => frame.event === "stream_open")) catchUp().catch(() => {});
        const changes = frames.filter((frame) => frame.event === "run_state" || frame.event === "run_change");
        if (!changes.length) return;
        work.current.frames.push(...changes.map((frame) => frame.data));
        timer ||= setTimeout(flush, FLUSH_MS);
      },
    });
    return () => {
      subscription.stop();
      clearTimeout(timer);
    };
  }, [key]);
  useEffect(() => every(REFRESH_MS, refresh), []);

  return {
    ...pages,
    held: held.length,
    isHeldFull: held.length >= HELD_MAX,
    streamState,
    refresh: () => {
      setHeld([]);
      pages.reload();
    },
    /** Puts the runs that were held back into the list. */
    showHeld: () => {
      if (held.length >= HELD_MAX) pages.reload();
      else pages.replaceRows((rows) => insertRows(rows, held));
      setHeld([]);
    },
  };
}

/**
 * Numbers of runs by status for the buttons, read again at most every 5 s while something changes.
 * @param {import("./filter.js").Filter} filter @param {any} rows changes when the list has changed
 */
export function useRunCounts(filter, rows) {
  const [counts, setCounts] = useState(/** @type {any} */ (null));
  const key = addressOf({ ...filter, status: "", waits: "" });
  const state = useRef({ readAt: 0, timer: 0, key: "" });
  useEffect(() => {
    const isOther = state.current.key !== key;
    state.current.key = key;
    if (isOther) {
      clearTimeout(state.current.timer);
      state.current.timer = 0;
    }
    if (state.current.timer) return;
    const wait = isOther ? 0 : Math.max(0, state.current.readAt + COUNTS_MS - Date.now());
    state.current.timer = setTimeout(() => {
      state.current.timer = 0;
      state.current.readAt = Date.now();
      const { status, waiting, ...query } = apiQueryOf(filter, Date.now());
      runs.counts(query).then(
        (answer) => state.current.key === key && setCounts(answer),
        () => {},
      );
    }, wait);
  }, [key, rows]);
  useEffect(() => () => clearTimeout(state.current.timer), []);
  return counts;
}
