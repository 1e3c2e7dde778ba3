// The window of records that a page of a partition shows, read as it is needed, and kept up to date while it is live.
import { useEffect, useRef, useState } from "../../ui.js";
import { log } from "../../api.js";
import { every, onReconnect } from "../../resource.js";
import { hasPaused, openWindow, readBack, readOn } from "./window.js";

const LIVE_EVERY_MS = 2_000;

/**
 * @param {{topic: string, partition: string, from: string, type: string, runId: string, isLive: boolean}} wish from: an offset or a time, "" for the newest
 * @returns {{window: import("./window.js").Window | null, error: any, busy: "" | "open" | "on" | "back", prepended: number, on: () => void, back: () => void, reload: () => void}}
 *   prepended: how many rows were put before those that were there, over all
 */
export function useWindow({ topic, partition, from, type, runId, isLive }) {
  const [state, setState] = useState(/** @type {any} */ ({ window: null, error: null, busy: "open", prepended: 0 }));
  const work = useRef(/** @type {any} */ ({ window: null, busy: false, abort: null }));
  const [round, setRound] = useState(0);
  const filter = { type, run_id: runId };
  const inputs = [topic, partition, from, type, runId];

  const act = async (kind, change) => {
    const current = work.current;
    if (current.busy && kind !== "open") return;
    if (kind === "open") {
      current.abort?.abort();
      current.abort = new AbortController();
    }
    const { signal } = current.abort;
    const read = (query) => log.records(topic, partition, query, { signal });
    current.busy = true;
    if (kind !== "live") setState((before) => ({ ...before, busy: kind }));
    try {
      const window = await change(read, current.window);
      if (signal.aborted) return;
      const more = kind === "back" ? window.rows.length - current.window.rows.length : 0;
      current.window = window;
      current.busy = false;
      setState((before) => ({ window, error: null, busy: "", prepended: before.prepended + more }));
    } catch (error) {
      if (signal.aborted) return;
      current.busy = false;
      setState((before) => ({ ...before, error, busy: "" }));
    }
  };
  useEffect(() => {
    work.current.window = null;
    setState({ window: null, error: null, busy: "open", prepended: 0 });
    act("open", (read) => openWindow(read, from, filter));
    return () => work.current.abort?.abort();
  }, [...inputs, round]);
  useEffect(() => onReconnect(() => work.current.window === null && setRound((value) => value + 1)), []);
  useEffect(() => {
    if (!isLive) return undefined;
    return every(LIVE_EVERY_MS, () => work.current.window && act("live", (read, window) => readOn(read, window, filter)));
  }, [isLive, ...inputs]);

  return {
    ...state,
    on: () => state.window && !state.window.isAtEnd && act("on", (read, window) => readOn(read, hasPaused(window) ? { ...window, emptySteps: 0 } : window, filter)),
    back: () => state.window && state.window.first > state.window.beginning && act("back", (read, window) => readBack(read, window, filter)),
    reload: () => setRound((value) => value + 1),
  };
}
