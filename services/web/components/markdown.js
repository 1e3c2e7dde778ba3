// Markdown and code as elements: marked makes tokens, and tokens become elements here, so no text of a model is ever HTML.
import { h, html, useEffect, useState } from "../ui.js";
import { onReconnect } from "../resource.js";
import { LongText } from "./json.js";

/** Longer texts are shown plain: nobody reads them as prose, and parsing them would hold the page. */
const MARKDOWN_MAX = 60_000;
const CODE_MAX = 40_000;
const LANGUAGES = { js: "javascript", ts: "javascript", typescript: "javascript", py: "python", sh: "bash", shell: "bash", yml: "yaml" };

let lexer = /** @type {any} */ (null);
let prism = /** @type {any} */ (null);

async function loadLexer() {
  lexer ??= (await import("../vendor/marked.js")).lexer;
  return lexer;
}

async function loadPrism() {
  if (prism) return prism;
  /** @type {any} */ (window).Prism = { manual: true, disableWorkerMessageHandler: true };
  await import("../vendor/prism-core.js");
  const grammar = (name) => import(`../vendor/prism-${name}.js`);
  await grammar("clike"); // others extend it
  await Promise.all(["javascript", "json", "yaml", "python", "bash", "sql", "diff"].map(grammar));
  prism = /** @type {any} */ (window).Prism;
  return prism;
}

/** @param {{text: string}} properties */
export function Markdown({ text }) {
  const [ready, setReady] = useState(lexer !== null);
  useEffect(() => {
    if (ready) return undefined;
    // A server that is away now is asked again when it is back; until then the text is plain.
    const load = () => loadLexer().then(() => setReady(true), () => {});
    load();
    return onReconnect(load);
  }, []);
  if (!ready || text.length > MARKDOWN_MAX) return html`<div class="markdown plain"><${LongText} text=${text} max=${20_000} /></div>`;
  let tokens;
  try {
    tokens = lexer(text, { gfm: true });
  } catch {
    return html`<div class="markdown plain"><${LongText} text=${text} max=${20_000} /></div>`;
  }
  return html`<div class="markdown" dir="auto">${tokens.map(block)}</div>`;
}

function block(token, at) {
  switch (token.type) {
    case "space":
      return null;
    case "heading":
      return h(`h${Math.min(token.depth + 2, 6)}`, { key: at }, inline(token.tokens));
    case "paragraph":
      return h("p", { key: at }, inline(token.tokens));
    case "text":
      return h("span", { key: at }, token.tokens ? inline(token.tokens) : decode(token.text));
    case "code":
      return h(Code, { key: at, text: token.text, language: token.lang ?? "" });
    case "blockquote":
      return h("blockquote", { key: at }, token.tokens.map(block));
    case "list":
      return h(
        token.ordered ? "ol" : "ul",
        { key: at, start: token.ordered && token.start !== 1 ? token.start : undefined },
        token.items.map((item, number) => h("li", { key: number }, item.task ? h("input", { type: "checkbox", checked: item.checked, disabled: true }) : null, item.tokens.map(block))),
      );
    case "table":
      return h("div", { key: at, class: "plain-table" }, [
        h("table", null, [
          h("thead", null, h("tr", null, token.header.map((cell, number) => h("th", { key: number }, inline(cell.tokens))))),
          h("tbody", null, token.rows.map((row, line) => h("tr", { key: line }, row.map((cell, number) => h("td", { key: number }, inline(cell.tokens)))))),
        ]),
      ]);
    case "hr":
      return h("hr", { key: at });
    default:
      // "html" and whatever a later version adds: shown as it was written.
      return h("p", { key: at }, token.raw ?? token.text ?? "");
  }
}

function inline(tokens = []) {
  return tokens.map((token, at) => {
    switch (token.type) {
      case "strong":
        return h("strong", { key: at }, inline(token.tokens));
      case "em":
        return h("em", { key: at }, inline(token.tokens));
      case "del":
        return h("del", { key: at }, inline(token.tokens));
      case "codespan":
        return h("code", { key: at }, token.text);
      case "br":
        return h("br", { key: at });
      case "escape":
        return token.text;
      case "link":
        return isSafe(token.href)
          ? h("a", { key: at, href: token.href, target: "_blank", rel: "noopener noreferrer nofollow", title: token.href }, inline(token.tokens))
          : h("span", { key: at }, token.raw);
      case "image":
        // Never loaded: an address in a model's text must not be asked for by looking at it.
        return isSafe(token.href) ? h("a", { key: at, href: token.href, target: "_blank", rel: "noopener noreferrer nofollow" }, `[image: ${token.text || token.href}]`) : h("span", { key: at }, token.raw);
      case "text":
        return token.tokens ? h("span", { key: at }, inline(token.tokens)) : decode(token.text);
      default:
        return token.raw ?? token.text ?? "";
    }
  });
}

const isSafe = (address) => /^(https?:\/\/|mailto:)/i.test(address ?? "");

/** Text tokens keep what was written, entities included. */
const decode = (text) => text;

/** A block of code; highlighted when its language is known. @param {{text: string, language?: string}} properties */
export function Code({ text, language = "" }) {
  const name = LANGUAGES[language.toLowerCase()] ?? language.toLowerCase();
  const [ready, setReady] = useState(prism !== null);
  const wanted = name && text.length <= CODE_MAX;
  useEffect(() => {
    if (wanted && !ready) loadPrism().then(() => setReady(true), () => {}); // without colours if it does not come
  }, [wanted]);
  const grammar = wanted && ready && Object.hasOwn(prism.languages, name) ? prism.languages[name] : null;
  if (!grammar || typeof grammar !== "object") return html`<pre class="block" tabindex="0"><code><${LongText} text=${text} max=${CODE_MAX} /></code></pre>`;
  return html`<pre class="block" tabindex="0"><code>${prism.tokenize(text, grammar).map(colored)}</code></pre>`;
}

function colored(token, at) {
  if (typeof token === "string") return token;
  const inside = Array.isArray(token.content) ? token.content.map(colored) : typeof token.content === "string" ? token.content : colored(token.content, 0);
  return h("span", { key: at, class: `t-${token.type}` }, inside);
}
