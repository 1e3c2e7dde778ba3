// What a code agent's script finds around it. Runs first, in the script's own realm, and is called with what the host
// gives: `ask(name, input)` answers a tool call from the record or ends the process, so it returns only what is known.
// Everything that could make two executions differ, or reach outside, is taken away here; the process takes the rest.
(function (ask, seed, epochMs, tools) {
  "use strict";
  const { parse, stringify } = JSON;
  const { defineProperty, getPrototypeOf, freeze, create } = Object;
  const { apply, construct } = Reflect;
  const RealDate = Date;
  const toText = String;
  const imul = Math.imul;
  const wellFormed = String.prototype.toWellFormed;
  const set = (target, name, value) => defineProperty(target, name, { value, writable: true, configurable: true });

  // Chance: a linear congruential generator over 32 bits (Numerical Recipes), so that the same run draws the same.
  let state = seed >>> 0;
  set(Math, "random", function random() {
    state = (imul(state, 1664525) + 1013904223) >>> 0;
    return state / 4294967296;
  });

  // Time: begins with the run and goes on by a millisecond each time it is asked.
  let now = epochMs;
  const tick = () => now++;
  function VirtualDate(...parts) {
    if (!new.target) return new RealDate(tick()).toString();
    return construct(RealDate, parts.length ? parts : [tick()], new.target);
  }
  VirtualDate.prototype = RealDate.prototype;
  set(VirtualDate, "now", tick);
  set(VirtualDate, "parse", RealDate.parse);
  set(VirtualDate, "UTC", RealDate.UTC);
  defineProperty(VirtualDate, "name", { value: "Date" });
  defineProperty(VirtualDate, "length", { value: 7 });
  defineProperty(RealDate.prototype, "constructor", { value: VirtualDate });
  globalThis.Date = VirtualDate;

  // Code from text, and the constructors that reach it through any function.
  const refuse = function () {
    throw new EvalError("code from text is not available to code agents");
  };
  for (const made of [function () {}, async function () {}, function* () {}, async function* () {}]) {
    defineProperty(getPrototypeOf(made), "constructor", { value: refuse, writable: false, configurable: false });
  }
  // eval and Function make code; the others show when garbage is collected, which time it is, or block a thread.
  for (const name of ["eval", "Function", "WeakRef", "FinalizationRegistry", "performance", "Atomics", "SharedArrayBuffer"]) {
    delete globalThis[name];
  }

  class ToolError extends Error {
    constructor(tool, message) {
      super(message);
      this.tool = tool;
    }
  }
  defineProperty(ToolError.prototype, "name", { value: "ToolError" });
  set(globalThis, "ToolError", ToolError);

  function asked(name, input) {
    const said = input === undefined ? {} : input;
    if (said === null || typeof said !== "object" || typeof said.length === "number") {
      throw new TypeError(name + " takes one object with its arguments");
    }
    const text = stringify(said);
    if (typeof text !== "string" || text[0] !== "{") throw new TypeError(name + " takes one object with its arguments");
    const answer = parse(ask(name, text));
    if (answer.is_error) throw new ToolError(name, answer.text);
    return answer.text;
  }
  function ifJson(text) {
    try {
      return parse(text);
    } catch {
      return text;
    }
  }
  const withOp = (op, input) => {
    if (input !== undefined && (input === null || typeof input !== "object")) {
      throw new TypeError(op + " takes one object with its arguments");
    }
    return { ...input, op };
  };
  const surface = (name) =>
    new Proxy(freeze(create(null)), {
      get: (_, op) => (typeof op === "string" ? (input) => ifJson(asked(name, withOp(op, input))) : undefined),
      has: () => true,
      set: () => false,
      defineProperty: () => false,
    });
  for (const name of tools) {
    if (name === "Memory" || name === "Channel") set(globalThis, name, surface(name));
    else if (name === "Agent") set(globalThis, name, freeze({ spawn: (input) => asked(name, withOp("spawn", input)) }));
    else if (name.startsWith("mcp__")) set(globalThis, name, (input) => ifJson(asked(name, input)));
    else set(globalThis, name, (input) => asked(name, input));
  }

  function text(value) {
    if (value === undefined || value === null) return "";
    if (typeof value === "string") return value;
    if (typeof value === "object" && typeof value.final_text === "string") return value.final_text;
    const written = stringify(value);
    if (typeof written !== "string") throw new TypeError("run returned a " + typeof value + ", which is no text and no JSON");
    return written;
  }
  // The host calls begin(run, input), which says whether to go on, and then reads the outcome at the end; an async run
  // is settled by then or never.
  const outcome = { is_settled: false, has_failed: false, value: undefined };
  const settle = (hasFailed) => (value) => {
    outcome.is_settled = true;
    outcome.has_failed = hasFailed;
    outcome.value = value;
  };
  const then = Promise.prototype.then;
  // What was thrown, with its stack when it has one.
  const described = (error) => {
    const stack = error !== null && typeof error === "object" ? error.stack : "";
    return toText(error) + (typeof stack === "string" && stack !== "" ? "\n" + stack : "");
  };
  // The engine hands out a string up to its first NUL, so the host is given JSON, of an object without the script's
  // toJSON. The log holds no half of a surrogate pair.
  const answer = (name, said) => {
    const told = create(null);
    told[name] = apply(wellFormed, said, []);
    return stringify(told);
  };
  return {
    begin(run, input) {
      try {
        const value = run(parse(input));
        if (value instanceof Promise) apply(then, value, [settle(false), settle(true)]);
        else settle(false)(value);
      } catch (error) {
        settle(true)(error);
      }
      return !outcome.has_failed;
    },
    end() {
      try {
        if (!outcome.is_settled) throw new Error("the promise that run returned waits for something that never comes");
        if (outcome.has_failed) throw outcome.value;
        return answer("text", text(outcome.value));
      } catch (error) {
        return answer("error", described(error));
      }
    },
  };
})
