// Server-sent events: one subscription that survives broken connections. Frames with an id are delivered once.
import { ApiError, connection, newKey, refusal } from "./api.js";
import { parseJson, printJson } from "./exact_json.js";

const WAIT_MIN_MS = 500;
const WAIT_MAX_MS = 10_000;
/** Silence after which a connection counts as lost; the server sends a comment every 20 to 25 s. */
const SILENCE_MS = 60_000;
const MANY_FRAMES = 50;

/** @typedef {{id: string, event: string, data: any}} Frame */

/**
 * Follows a stream until `stop()` or until it ends by itself.
 *
 * @param {string} path with its query
 * @param {{
 *   onFrames: (frames: Frame[]) => void,
 *   onState?: (state: "connecting" | "open" | "waiting" | "ended", error?: Error) => void,
 *   lastId?: string,
 *   isEnd?: (frame: Frame) => boolean,
 *   method?: string,
 *   body?: any,
 *   reconnects?: boolean,
 *   whileVisible?: boolean,
 * }} options
 *   onFrames gets all frames of one read together: render once. lastId: resume after this frame. isEnd: whether the stream ends with that frame; without it a
 *   stream that the server closes is opened again. body: for streams that a POST answers; these are not repeated. whileVisible: closed while nobody sees the
 *   tab and opened when it is seen again: browsers allow six connections to one server over HTTP/1.1, for all tabs together.
 * @returns {{stop: () => void}}
 */
export function follow(path, { onFrames, onState = () => {}, lastId = "", isEnd, method = "GET", body, reconnects = method === "GET", whileVisible = false }) {
  if (whileVisible) return followWhileVisible(path, { onFrames, onState, lastId, isEnd, method, body, reconnects });
  const abort = new AbortController();
  let last = lastId;
  let stopped = false;

  async function run() {
    let wait = WAIT_MIN_MS;
    while (!stopped) {
      onState("connecting");
      try {
        const ended = await read(() => (wait = WAIT_MIN_MS));
        if (ended || !reconnects) return onState("ended");
      } catch (error) {
        if (stopped) return;
        const refused = error instanceof ApiError && !error.isTransient && error.status !== 404;
        if (refused || !reconnects) return onState("ended", /** @type {Error} */ (error));
        if (!(error instanceof ApiError)) connection.value = "away";
        onState("waiting", /** @type {Error} */ (error));
        // A server that has just begun, or a proxy, may not know yet what is there: that is asked again, but seldom.
        if (error instanceof ApiError && error.status === 404) wait = WAIT_MAX_MS;
        if (error instanceof ApiError && error.retryAfterS) wait = Math.max(wait, error.retryAfterS * 1000);
      }
      await untilBack(wait * (0.7 + 0.6 * Math.random()), abort.signal);
      wait = Math.min(wait * 2, WAIT_MAX_MS);
    }
  }

  /** @param {() => void} onOpen @returns {Promise<boolean>} whether the stream has ended by itself */
  async function read(onOpen) {
    const one = new AbortController();
    const end = () => one.abort();
    abort.signal.addEventListener("abort", end);
    let silence = setTimeout(end, SILENCE_MS);
    try {
      /** @type {Record<string, string>} */
      const headers = { accept: "text/event-stream" };
      if (last) headers["last-event-id"] = last;
      if (body !== undefined) headers["content-type"] = "application/json";
      if (method !== "GET") headers["idempotency-key"] = newKey();
      const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : printJson(body), signal: one.signal, cache: "no-store" });
      if (!answer.ok) throw await refusal(answer);
      connection.value = "ok";
      onOpen();
      onState("open");
      const decoder = new FrameDecoder();
      const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return false;
        clearTimeout(silence);
        silence = setTimeout(end, SILENCE_MS);
        const frames = decoder.push(value);
        if (!frames.length) continue;
        for (const frame of frames) if (frame.id) last = frame.id;
        onFrames(frames);
        if (isEnd && frames.some(isEnd)) return true;
        // A long past arrives faster than it can be shown: between two pieces the page may draw and answer its person.
        if (frames.length >= MANY_FRAMES) await pause(0, one.signal);
      }
    } finally {
      clearTimeout(silence);
      abort.signal.removeEventListener("abort", end);
      one.abort();
    }
  }

  run();
  return {
    stop() {
      stopped = true;
      abort.abort();
    },
  };
}

/** `follow` that leaves the stream while the tab is hidden, and resumes after the last frame with an id. */
function followWhileVisible(path, options) {
  let last = options.lastId;
  let hasEnded = false;
  let current = /** @type {{stop: () => void} | null} */ (null);
  const open = () => {
    current = follow(path, {
      ...options,
      lastId: last,
      onState: (state, error) => {
        if (state === "ended") hasEnded = true;
        options.onState(state, error);
      },
      onFrames: (frames) => {
        for (const frame of frames) if (frame.id) last = frame.id;
        options.onFrames(frames);
      },
    });
  };
  const changed = () => {
    const isVisible = document.visibilityState === "visible";
    if (isVisible && !current && !hasEnded) open();
    else if (!isVisible && current) {
      current.stop();
      current = null;
    }
  };
  document.addEventListener("visibilitychange", changed);
  changed();
  return {
    stop() {
      document.removeEventListener("visibilitychange", changed);
      current?.stop();
      current = null;
    },
  };
}

/** Bytes of an event stream to frames; text of a frame may arrive in any pieces. */
export class FrameDecoder {
  constructor() {
    this.text = "";
    this.decoder = new TextDecoder();
  }
  /** @param {Uint8Array} bytes @returns {Frame[]} */
  push(bytes) {
    this.text += this.decoder.decode(bytes, { stream: true });
    const blocks = this.text.split("\n\n");
    this.text = blocks.pop() ?? "";
    return blocks.map(parse).filter((frame) => frame !== null);
  }
}

/** @param {string} block @returns {Frame | null} null for a comment */
function parse(block) {
  const frame = { id: "", event: "message", data: /** @type {any} */ (null) };
  const data = [];
  for (const line of block.split("\n")) {
    const at = line.indexOf(":");
    if (at === 0) continue;
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(line[at + 1] === " " ? at + 2 : at + 1);
    if (name === "id") frame.id = value;
    else if (name === "event") frame.event = value;
    else if (name === "data") data.push(value);
  }
  if (!data.length) return null;
  try {
    frame.data = parseJson(data.join("\n"));
  } catch {
    frame.data = data.join("\n");
  }
  return frame;
}

/** Waits before the next attempt, but no longer than until the server is known to answer again. @param {number} ms @param {AbortSignal} aborted @returns {Promise<void>} */
async function untilBack(ms, aborted) {
  const back = new AbortController();
  const stop = () => back.abort();
  aborted.addEventListener("abort", stop, { once: true });
  let before = connection.peek();
  const forget = connection.subscribe((now) => {
    if (before !== "ok" && now === "ok") stop();
    before = now;
  });
  await pause(ms, back.signal);
  forget();
  aborted.removeEventListener("abort", stop);
}

/** @param {number} ms @param {AbortSignal} aborted @returns {Promise<void>} */
function pause(ms, aborted) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    aborted.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
