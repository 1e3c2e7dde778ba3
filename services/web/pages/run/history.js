// Everything the page of a run knows of it: the run, its records, its frames, and the moment that is looked at.
// The stream says that something happened; records follow within EVENTS_EVERY_MS. A run that has ended is never asked again.
import { signal, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../../ui.js";
import { runs, seg } from "../../api.js";
import { every, onReconnect } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { follow } from "../../stream.js";
import { FRAMES_PER_EVENT, NO_PREVIEW, RUN_ENDS, appendEvents, takeFrames, turnsOf, upTo } from "./model.js";

/** Of the first page, which is enough to show a view, and of the others. */
const EVENTS_FIRST_PAGE = 100;
const EVENTS_PAGE = 1_000;
const EVENTS_EVERY_MS = 300;
const RUN_EVERY_MS = 1_000;
const ADDRESS_AFTER_MS = 200;
const TOLD_AFTER_MS = 20;
/** Once there is more than a view shows: rows are made of all that is known, so the past of a long run is told in few steps. */
const PAST_TOLD_AFTER_MS = 150;
const VIEW_FRAMES = 300;
const MANY_FRAMES = 100;
/** The read models may lag behind the stream: how often records are asked for that have a frame already. */
const LAST_ATTEMPTS = 12;
/** Some records of a run at work have no frame, such as the start of a sub-agent: how often they are asked for. */
const QUIET_EVERY_MS = 2_500;
const REFUSED_WAIT_MS = 1_000;
/** Openings of the stream of a run that has ended whose last frame does not come. */
const OPENINGS_MAX = 3;

/**
 * @typedef {{
 *   runId: string, run: Api.Run, error: any, reload: () => void,
 *   events: import("./model.js").EventRecord[], frames: import("./model.js").RunFrame[],
 *   preview: import("@preact/signals").Signal<import("./model.js").Preview>,
 *   isComplete: boolean, isLive: boolean, isStreamOpen: boolean,
 *   at: number | null, setAt: (seq: number | null) => void,
 *   shown: import("./model.js").EventRecord[], shownFrames: import("./model.js").RunFrame[],
 *   turns: import("./model.js").Turn[],
 * }} History
 *   events: of the run, dense from seq 1. isComplete: all records that there are have been read. at: seq that is looked at, null is now.
 *   shown, shownFrames: what had happened by then. turns: of all events.
 */

/** Address of a record of a run, among its raw records. @param {string} runId @param {number} seq */
export const recordPath = (runId, seq) => link(`/runs/${runId}/events`, { seq });

/** @param {string} runId @returns {History} */
export function useHistory(runId) {
  const [reader, setReader] = useState(() => new HistoryReader(runId));
  const [state, setState] = useState(reader.state);
  useLayoutEffect(() => {
    const current = reader.runId === runId ? reader : new HistoryReader(runId);
    setReader(current);
    setState(current.state);
    current.start(setState);
    const stopReconnect = onReconnect(() => current.wake());
    return () => {
      stopReconnect();
      current.stop();
    };
  }, [runId]);

  const { events, frames } = state;
  const [at, setAt] = useMoment();
  const shown = useMemo(() => upTo(events, at), [events, at]);
  const shownFrames = useMemo(() => upTo(frames, at), [frames, at]);
  const turns = useMemo(() => turnsOf(events), [events]);
  return { runId, ...state, at, setAt, shown, shownFrames, turns, preview: reader.preview, reload: reader.reload };
}

/** The moment that is looked at: at once for the panes, a little later in the address, which browsers let change only so often. */
function useMoment() {
  const inAddress = here.value.query.get("at") ?? "";
  const address = /^[1-9]\d{0,8}$/.test(inAddress) ? Number(inAddress) : null;
  const [at, setLocal] = useState(address);
  useEffect(() => setLocal(address), [address]);
  const timer = useRef(0);
  const setAt = useCallback((/** @type {number | null} */ seq) => {
    setLocal(seq);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ at: seq }), ADDRESS_AFTER_MS);
  }, []);
  useEffect(() => () => clearTimeout(timer.current), []);
  return /** @type {[number | null, (seq: number | null) => void]} */ ([at, setAt]);
}

/** Reads one run; `start` gives every change of its state to a listener. */
export class HistoryReader {
  /** @param {string} runId */
  constructor(runId) {
    this.runId = runId;
    this.preview = signal(NO_PREVIEW);
    /** @type {{run: any, error: any, events: import("./model.js").EventRecord[], frames: import("./model.js").RunFrame[], isComplete: boolean, isLive: boolean, isStreamOpen: boolean}} */
    this.state = { run: undefined, error: null, events: [], frames: [], isComplete: false, isLive: false, isStreamOpen: true };
    this.last = -1;
    this.cursor = "";
    this.isReading = this.isDue = this.isWaiting = this.isRunDue = false;
    this.hasEnded = this.wasOpen = this.isTold = false;
    this.openings = this.toldFrames = 0;
    this.readAt = 0;
    this.attempts = 0;
    this.abort = new AbortController();
    this.timers = new Set();
    this.listener = (_) => {};
    this.reload = () => {
      this.readRun();
      this.attempts = 0;
      this.readEvents();
    };
  }

  /** @param {(state: any) => void} listener */
  start(listener) {
    this.listener = listener;
    if (this.abort.signal.aborted) this.abort = new AbortController();
    this.readRun();
    this.readEvents();
    this.follow();
    this.stopPoll = every(QUIET_EVERY_MS, () => {
      if (this.state.isLive && !this.state.run.parked && !this.state.run.paused && Date.now() - this.readAt > QUIET_EVERY_MS / 2) this.readEvents();
    });
  }

  stop() {
    this.listener = () => {};
    this.abort.abort();
    this.stream?.stop();
    this.stream = undefined;
    this.stopPoll?.();
    for (const timer of this.timers) clearTimeout(timer);
    this.timers.clear();
    this.isWaiting = this.isRunDue = this.isTold = false;
  }

  /** The server answers again: what failed meanwhile is asked once more. */
  wake() {
    if (this.state.error || !this.state.run || this.state.isLive) this.readRun();
    if (!this.state.isComplete || this.state.isLive) this.readEvents();
  }

  /** @param {any} changes @param {boolean} [isUrgent] else what follows within a frame of the screen is told with it */
  change(changes, isUrgent = true) {
    this.state = { ...this.state, ...changes };
    if (isUrgent) return this.tell();
    if (this.isTold) return undefined;
    this.isTold = true;
    return this.later(this.toldFrames > VIEW_FRAMES ? PAST_TOLD_AFTER_MS : TOLD_AFTER_MS, () => {
      this.isTold = false;
      this.tell();
    });
  }

  tell() {
    this.toldFrames = this.state.frames.length;
    this.listener(this.state);
  }

  later(ms, act) {
    const timer = setTimeout(() => {
      this.timers.delete(timer);
      act();
    }, ms);
    this.timers.add(timer);
  }

  // ---- the run ----

  async readRun() {
    const { signal: aborted } = this.abort;
    try {
      const run = await runs.one(this.runId, { signal: aborted });
      if (aborted.aborted) return;
      const isLive = run.status === "running";
      this.change({ run, error: null, isLive });
      if (isLive) this.follow();
    } catch (error) {
      if (!aborted.aborted) this.change({ error });
    }
  }

  /** The run is read again soon, once for all that happens meanwhile. */
  runChanged(ms = RUN_EVERY_MS) {
    if (this.isRunDue) return;
    this.isRunDue = true;
    this.later(ms, () => {
      this.isRunDue = false;
      this.readRun();
    });
  }

  // ---- the stream ----

  follow() {
    if (this.stream || this.hasEnded) return;
    this.stream = follow(`/v1/runs/${seg(this.runId)}/stream`, {
      lastId: this.last >= 0 ? String(this.last) : "",
      isEnd: (frame) => RUN_ENDS.has(frame.event),
      whileVisible: true,
      onFrames: (received) => this.take(received),
      onState: (state, error) => this.streamChanged(state, error),
    });
  }

  /** @param {string} state @param {any} [error] */
  streamChanged(state, error) {
    if (state === "open" && (this.preview.value.text || this.preview.value.thinking)) this.preview.value = { ...this.preview.value, isStale: true };
    if (state === "ended") {
      this.hasEnded = true;
      this.preview.value = NO_PREVIEW;
      if (error && !this.state.error) this.change({ error });
      if (!error) this.ended();
    }
    if (state === "connecting" && this.wasOpen) {
      // The server may close the stream of a run that has ended without a last frame: then it is not opened for ever.
      if (this.state.run && !this.state.isLive && (this.openings += 1) > OPENINGS_MAX) {
        this.hasEnded = true;
        this.stream?.stop();
      } else this.runChanged(0);
    }
    this.wasOpen = this.wasOpen || state === "open";
    const isStreamOpen = state !== "waiting" && (state !== "connecting" || this.state.isStreamOpen);
    if (isStreamOpen !== this.state.isStreamOpen) this.change({ isStreamOpen });
  }

  take(received) {
    const taken = takeFrames(this.preview.value, this.last, received, this.state.isLive ? new Date().toISOString() : "");
    this.last = taken.last;
    if (taken.frames.length) {
      // The past of a run comes in many pieces; what happens now is shown at once, together with its preview.
      this.change({ frames: [...this.state.frames, ...taken.frames] }, this.state.isLive && taken.frames.length < MANY_FRAMES);
      this.attempts = LAST_ATTEMPTS;
      if (this.state.isLive || !this.state.run) {
        this.runChanged();
        this.readEvents();
      }
    }
    if (taken.preview !== this.preview.value) this.preview.value = taken.preview;
  }

  /** After the last frame: the run and its last records, as soon as the read models have them. */
  ended() {
    this.attempts = LAST_ATTEMPTS;
    this.runChanged(50);
    this.readEvents();
  }

  // ---- the records ----

  /** Reads the records after the newest known one, at most once in EVENTS_EVERY_MS. */
  async readEvents() {
    if (this.isReading) {
      this.isDue = true;
      return;
    }
    const wait = this.readAt + EVENTS_EVERY_MS - Date.now();
    if (wait > 0) {
      if (!this.isWaiting) this.later(wait, () => ((this.isWaiting = false), this.readEvents()));
      this.isWaiting = true;
      return;
    }
    const { signal: aborted } = this.abort;
    this.isReading = true;
    this.isDue = false;
    this.readAt = Date.now();
    try {
      for (let next = /** @type {string | null} */ (this.cursor); next !== null; ) {
        const known = this.state.events;
        const page = await runs.events(this.runId, { limit: known.length ? EVENTS_PAGE : EVENTS_FIRST_PAGE, cursor: next }, { signal: aborted });
        if (aborted.aborted) return;
        next = page.next;
        this.cursor = page.resume ?? next ?? this.cursor;
        const events = appendEvents(known, page.events);
        // Never a gap: should a record be missing, the list is read from its beginning once more.
        if (page.events.length && events[events.length - 1]?.seq < page.events[page.events.length - 1].seq) this.cursor = "";
        if (events !== known || (!next && !this.state.isComplete)) this.change({ events, isComplete: !next || this.state.isComplete }, !next || !known.length);
      }
    } catch (error) {
      if (aborted.aborted) return;
      if (error?.status === 429 || error?.status === 503) {
        this.isDue = true;
        this.readAt = Date.now() + REFUSED_WAIT_MS;
      } else if (!this.state.error) this.change({ error });
    } finally {
      this.isReading = false;
    }
    const newest = this.state.events[this.state.events.length - 1]?.seq ?? 0;
    const isBehind = this.last >= 0 && newest < Math.floor(this.last / FRAMES_PER_EVENT);
    if (this.isDue) this.readEvents();
    else if (isBehind && this.attempts > 0) {
      this.attempts -= 1;
      this.later(EVENTS_EVERY_MS, () => this.readEvents());
    }
  }
}
