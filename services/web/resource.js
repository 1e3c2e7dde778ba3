// Data of a page: one load with its states, pages of a list, and a value that is read again while somebody looks.
// Reading begins in layout effects: others run after the next paint, which a read need not wait for.
import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "./ui.js";
import { connection } from "./api.js";
import { printJson } from "./exact_json.js";

/**
 * Loads when the page opens and whenever `inputs` change; an older load that ends later is dropped.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load
 * @param {any[]} inputs
 * @param {{everyMs?: number}} [options] everyMs: read again so often while the tab is visible (at least 2,000)
 * @returns {{data: T | undefined, error: any, isLoading: boolean, reload: () => void, setData: (data: T) => void}}
 *   data and the error of the last reading stay while it is read again, so that nothing on the page jumps.
 */
export function useResource(load, inputs, { everyMs = 0 } = {}) {
  const [state, setState] = useState(/** @type {any} */ ({ data: undefined, error: null, isLoading: true }));
  const [round, setRound] = useState(0);
  const reload = useCallback(() => setRound((value) => value + 1), []);
  const key = useRef("");
  useLayoutEffect(() => {
    const abort = new AbortController();
    const now = printJson(inputs);
    const isOther = key.current !== now;
    key.current = now;
    setState((before) => ({ data: isOther ? undefined : before.data, error: isOther ? null : before.error, isLoading: true }));
    load(abort.signal).then(
      (data) => !abort.signal.aborted && setState({ data, error: null, isLoading: false }),
      (error) => !abort.signal.aborted && setState((before) => ({ data: before.data, error, isLoading: false })),
    );
    return () => abort.abort();
  }, [...inputs, round]);
  useEffect(() => (everyMs ? every(Math.max(everyMs, 2_000), reload) : undefined), [everyMs, ...inputs]);
  useEffect(() => onReconnect(reload), []);
  return { ...state, reload, setData: (data) => setState({ data, error: null, isLoading: false }) };
}

/**
 * A list that is read page by page with `cursor` and `next`.
 * @template T
 * @param {(cursor: string, signal: AbortSignal) => Promise<{rows: T[], next: string | null}>} loadPage
 * @param {any[]} inputs of the filter; a change begins anew
 * @param {{reloadsOnReconnect?: boolean}} [options] reloadsOnReconnect: begins anew when the server is back; false for a list that a stream keeps up to date
 * @returns {{rows: T[], error: any, isLoading: boolean, isComplete: boolean, more: () => void, reload: () => void, replaceRows: (change: (rows: T[]) => T[]) => void}}
 */
export function usePages(loadPage, inputs, { reloadsOnReconnect = true } = {}) {
  const empty = { rows: [], next: "", error: null, isLoading: true, isComplete: false };
  const [state, setState] = useState(/** @type {any} */ (empty));
  const work = useRef(/** @type {any} */ ({ busy: false, abort: null, next: "" }));
  const [round, setRound] = useState(0);

  const fetchPage = useCallback(
    (isFirst) => {
      const current = work.current;
      if (current.busy && !isFirst) return;
      if (isFirst) {
        current.abort?.abort();
        current.abort = new AbortController();
        current.next = "";
      }
      const { signal } = current.abort;
      current.busy = true;
      setState((before) => ({ ...before, isLoading: true, error: null }));
      loadPage(current.next, signal).then(
        ({ rows, next }) => {
          if (signal.aborted) return;
          current.busy = false;
          current.next = next ?? "";
          setState((before) => ({
            rows: isFirst ? rows : [...before.rows, ...rows],
            error: null,
            isLoading: false,
            isComplete: !next,
          }));
        },
        (error) => {
          if (signal.aborted) return;
          current.busy = false;
          setState((before) => ({ ...before, error, isLoading: false }));
        },
      );
    },
    [...inputs],
  );
  useLayoutEffect(() => {
    setState(empty);
    fetchPage(true);
    return () => work.current.abort?.abort();
  }, [...inputs]);
  useEffect(() => {
    if (round) fetchPage(true);
  }, [round]);
  useEffect(() => (reloadsOnReconnect ? onReconnect(() => setRound((value) => value + 1)) : undefined), []);
  return {
    ...state,
    more: () => !state.isComplete && fetchPage(false),
    reload: () => setRound((value) => value + 1),
    replaceRows: (change) => setState((before) => ({ ...before, rows: change(before.rows) })),
  };
}

/** Calls `act` every `ms` while the tab is visible, and when it becomes visible again. @param {number} ms @param {() => void} act */
export function every(ms, act) {
  const timer = setInterval(() => document.visibilityState === "visible" && act(), ms);
  const seen = () => document.visibilityState === "visible" && act();
  document.addEventListener("visibilitychange", seen);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}

/** Calls `act` when the server answers again after it did not. @param {() => void} act */
export function onReconnect(act) {
  let before = connection.peek();
  return connection.subscribe((now) => {
    if (before !== "ok" && now === "ok") act();
    before = now;
  });
}

/**
 * An action of a button: its error and whether it runs. `run` resolves to false when it failed.
 * @returns {{run: (act: () => Promise<any>) => Promise<any>, isBusy: boolean, error: any, clear: () => void}}
 */
export function useAction() {
  const [state, setState] = useState({ isBusy: false, error: /** @type {any} */ (null) });
  const run = useCallback(async (act) => {
    setState({ isBusy: true, error: null });
    try {
      const result = await act();
      setState({ isBusy: false, error: null });
      return result ?? true;
    } catch (error) {
      setState({ isBusy: false, error });
      return false;
    }
  }, []);
  return { run, ...state, clear: () => setState({ isBusy: false, error: null }) };
}
