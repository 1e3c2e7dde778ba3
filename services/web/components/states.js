// What a page shows instead of data: loading, empty, an error in the server's words, forbidden. Each says what to do.
import { html, useEffect, useState } from "../ui.js";
import { ApiError } from "../api.js";
import { Button, CopyButton } from "./controls.js";
import { Icon } from "./icon.js";

/** Appears only after 150 ms, so that a quick answer does not flash. @param {{label?: string, rows?: number}} properties */
export function Loading({ label = "Loading", rows = 0 }) {
  const [isLate, setLate] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setLate(true), 150);
    return () => clearTimeout(timer);
  }, []);
  if (!isLate) return html`<div class="state quiet" aria-busy="true"></div>`;
  if (rows) return html`<div class="skeleton" role="status" aria-label=${label}>${Array.from({ length: rows }, (_, at) => html`<i key=${at}></i>`)}</div>`;
  return html`<div class="state quiet" role="status"><${Icon} name="loader-circle" spin /> <p>${label}</p></div>`;
}

/** Nothing there yet. @param {{icon?: string, title: string, children?: any, command?: string}} properties command: what to type to have something */
export function Empty({ icon = "inbox", title, children, command }) {
  return html`<div class="state">
    <${Icon} name=${icon} size=${28} />
    <h2>${title}</h2>
    ${children ? html`<div>${children}</div>` : null}
    ${command ? html`<p class="command"><code>${command}</code><${CopyButton} text=${command} label="Copy the command" /></p>` : null}
  </div>`;
}

/** @param {{error: any, onRetry?: () => void, compact?: boolean, isPage?: boolean}} properties isPage: there is nothing else on the page */
export function ErrorState({ error, onRetry, compact = false, isPage = false }) {
  if (error instanceof ApiError && error.status === 403) return html`<${Forbidden} scope=${error.body?.scope ?? error.body?.details?.scope} text=${error.message} isPage=${isPage} />`;
  const text = error instanceof Error ? error.message : String(error);
  const code = error instanceof ApiError && error.code ? error.code : "";
  if (compact) return html`<p class="problem" role="alert"><${Icon} name="circle-alert" /> ${text}${code ? html` <code>${code}</code>` : null} ${onRetry ? html`<${Button} small onClick=${onRetry}>Try again<//>` : null}</p>`;
  return html`<div class="state" role="alert">
    <${Icon} name=${error?.status === 404 ? "search" : "circle-alert"} size=${28} />
    <${isPage ? "h1" : "h2"}>${error?.status === 404 ? "Not found" : error?.isTransient ? "Not available now" : "The server refused this"}<//>
    <p>${text}</p>
    ${code ? html`<p class="dim"><code>${code}</code>${error.body?.request_id ? html` request <code>${error.body.request_id}</code>` : null}</p>` : null}
    ${onRetry ? html`<p class="actions"><${Button} icon="rotate-ccw" onClick=${onRetry}>Try again<//></p>` : null}
  </div>`;
}

/** @param {{scope?: string, text?: string, isPage?: boolean}} properties */
export function Forbidden({ scope, text, isPage = false }) {
  return html`<div class="state">
    <${Icon} name="lock" size=${28} />
    <${isPage ? "h1" : "h2"}>Your token may not see this<//>
    <p>${text ?? (scope === "tenant:read" ? "It is confined to the runs of its own user." : html`This needs the scope <code>${scope}</code>.`)} Ask an operator for another token, or sign in with another one.</p>
  </div>`;
}

/**
 * The states of a resource (useResource): data is shown as soon as it is there, an error of a later reading above it.
 * @template T
 * @param {{of: {data: T | undefined, error: any, isLoading: boolean, reload: () => void}, children: (data: T) => any, rows?: number}} properties
 */
export function Resource({ of, children, rows = 6 }) {
  if (of.data === undefined) return of.error ? html`<${ErrorState} error=${of.error} onRetry=${of.reload} />` : html`<${Loading} rows=${rows} />`;
  return html`${of.error && of.error.status !== 0 ? html`<${ErrorState} error=${of.error} onRetry=${of.reload} compact />` : null}${children(of.data)}`;
}
