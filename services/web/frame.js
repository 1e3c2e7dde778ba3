// The frame around every page: navigation, top bar, banner, and the page that the address names.
import { computed, html, signal, useEffect, useErrorBoundary, useRef, useState } from "./ui.js";
import { ApiError, connection, interrupts, operations, signedOut } from "./api.js";
import { Button, CopyButton } from "./components/controls.js";
import { Icon } from "./components/icon.js";
import { ErrorState, Forbidden, Loading } from "./components/states.js";
import { ShortcutsDialog, registerKeys, useKeys } from "./components/keys.js";
import { Toasts } from "./components/toast.js";
import { match } from "./match.js";
import { PAGES } from "./navigation.js";
import { JUMP_MAX, placeOf } from "./places.js";
import { every } from "./resource.js";
import { here, link, navigate } from "./router.js";
import { loadSession, login, may, me, signIn, signOut } from "./session.js";
import { navigationClosed, theme } from "./settings.js";
import { checkBuild } from "./version.js";

const NAME = "loomlog";
/** Of names of models and people: in a title they would turn what stands around them. */
const DIRECTION_MARKS = /[\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const INBOX_EVERY_MS = 10_000;
const THEMES = ["system", "light", "dark", "contrast"];
/** Questions that wait for an answer; null while unknown. The inbox page sets it too. */
export const waitingQuestions = signal(/** @type {number | null} */ (null));
/** Title of what the page shows, such as a run's id; set by `usePageTitle`. */
const pageTitle = signal("");

const found = computed(() => {
  const path = ["/", "/login"].includes(here.value.path) ? "/runs" : here.value.path;
  for (const page of PAGES) {
    const params = match(page.path, path);
    if (params) return { page, params };
  }
  return null;
});

/** Names what the page shows in the title of the window. @param {string} title */
export function usePageTitle(title) {
  useEffect(() => {
    pageTitle.value = title;
    return () => (pageTitle.value = "");
  }, [title]);
}

export function Frame() {
  useWindowTitle();
  if (!me.value || signedOut.value) return connection.value === "ok" ? html`<${SignIn} />` : html`<${Away} />`;
  return html`
    <a class="skip" href="#main" onClick=${skipToMain}>Skip to content</a>
    <div class=${"frame" + (navigationClosed.value ? " closed" : "")}>
      <${Navigation} />
      <div class="column">
        <${TopBar} />
        <${Banner} />
        <main id="main" tabindex="-1"><${CurrentPage} /></main>
      </div>
    </div>
    <${Toasts} />
    <${ShortcutsDialog} />
  `;
}

function skipToMain(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function useWindowTitle() {
  const waiting = waitingQuestions.value;
  const title = pageTitle.value || (found.value?.page.title ?? "Not found");
  useEffect(() => {
    document.title = `${waiting ? `(${waiting}) ` : ""}${title.replace(DIRECTION_MARKS, "")} · ${NAME}`;
  }, [title, waiting]);
}

function Navigation() {
  useEffect(() => {
    if (!may("runs:read")) return undefined;
    const read = () =>
      interrupts.list({ status: "pending", limit: 100 }).then(
        (answer) => (waitingQuestions.value = answer.interrupts.length),
        () => {},
      );
    read();
    return every(INBOX_EVERY_MS, read);
  }, [me.value]);
  const shown = PAGES.filter((page) => !page.hidden && may(page.scope ?? ""));
  const groups = [...new Set(shown.map((page) => page.group))];
  const first = "/" + (here.value.path.split("/")[1] || "runs");
  return html`
    <nav class="navigation" aria-label="Pages">
      <a class="brand" href=${link("/runs")}><${Mark} /><span>${NAME}</span></a>
      ${groups.map(
        (group) => html`
          <div class="group" key=${group}>
            <h2>${group}</h2>
            ${shown
              .filter((page) => page.group === group)
              .map(
                (page) => html`
                  <a href=${link(page.path)} aria-current=${first === page.path ? "page" : undefined} title=${page.title} key=${page.path}>
                    <${Icon} name=${page.icon ?? ""} /><span>${page.title}</span>
                    ${page.path === "/inbox" && waitingQuestions.value ? html`<b class="count" title="questions that wait for an answer">${waitingQuestions.value}</b>` : null}
                  </a>
                `,
              )}
          </div>
        `,
      )}
      <button class="fold" onClick=${() => (navigationClosed.value = !navigationClosed.value)} aria-expanded=${!navigationClosed.value} title=${navigationClosed.value ? "Expand" : "Collapse"}>
        <${Icon} name=${navigationClosed.value ? "chevron-right" : "chevron-left"} /><span>${navigationClosed.value ? "Expand" : "Collapse"}</span>
      </button>
    </nav>
  `;
}

function Mark() {
  return html`<svg class="mark" viewBox="0 0 32 32" aria-hidden="true">
    <rect width="32" height="32" rx="7" fill="var(--accent)" />
    <path d="M8 10h16M8 16h16M8 22h16" stroke="var(--on-accent)" stroke-width="2.4" stroke-linecap="round" />
    <path d="M12 6.500v19M20 6.500v19" stroke="var(--mark)" stroke-width="2.4" stroke-linecap="round" stroke-dasharray="4 5" />
  </svg>`;
}

function TopBar() {
  const caller = me.value;
  if (!caller) return null;
  const next = THEMES[(THEMES.indexOf(theme.value) + 1) % THEMES.length];
  const icon = { system: "sun-moon", light: "sun", dark: "moon", contrast: "eye" }[theme.value];
  return html`
    <header class="top">
      <button class="icon-button menu-button" aria-label="Pages" onClick=${() => (navigationClosed.value = !navigationClosed.value)}><${Icon} name="menu" /></button>
      <${JumpBox} />
      <span class="grow"></span>
      <button class="icon-button" title=${`Colours: ${theme.value}; press for ${next}`} aria-label=${`Colours: ${theme.value}. Change to ${next}`} onClick=${() => (theme.value = next)}><${Icon} name=${icon} /></button>
      <button class="icon-button" title="Keyboard shortcuts (?)" aria-label="Keyboard shortcuts" onClick=${() => registerKeys.open()}><${Icon} name="keyboard" /></button>
      <span class="who" title=${`tenant ${caller.tenant_id || "of every one"}; scopes ${caller.scopes.join(", ")}`}>
        <${Icon} name="user" />
        <span>${caller.open_mode ? "open mode" : caller.name || caller.subject}${caller.tenant_id ? html`<small>${caller.tenant_id}</small>` : null}</span>
      </span>
      ${caller.open_mode ? null : html`<button class="icon-button" title="Sign out" aria-label="Sign out" onClick=${signOut}><${Icon} name="log-out" /></button>`}
    </header>
  `;
}

/** Goes to a run, an agent or a record by its id. */
function JumpBox() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useKeys("Everywhere", { "/": ["Jump to an id", () => input.current?.focus()], "g r": ["Runs", () => navigate("/runs")], "g s": ["Start", () => navigate("/start")], "g i": ["Inbox", () => navigate("/inbox")], "g l": ["Log", () => navigate("/log")] });
  const go = (event) => {
    event.preventDefault();
    const text = input.current?.value.trim() ?? "";
    if (!text) return;
    if (input.current) input.current.value = "";
    input.current?.blur();
    navigate(placeOf(text));
  };
  return html`<form class="jump" role="search" onSubmit=${go}>
    <${Icon} name="search" />
    <input ref=${input} aria-label="Jump to a run, session or record by its id" placeholder="Jump to an id" maxlength=${JUMP_MAX} spellcheck="false" autocomplete="off" />
    <kbd>/</kbd>
  </form>`;
}

function Banner() {
  if (connection.value === "ok") return null;
  return html`<p class="banner" role="status">
    <${Icon} name="loader-circle" spin />
    ${connection.value === "starting" ? "The server is starting: it does not reach its log or its read models yet." : "The server does not answer. What you see is what it said last; this page goes on by itself when it is back."}
    <${Retry} />
  </p>`;
}

/** Asks whether the server is ready until it is, which ends the banner, opens the streams and reloads what the page shows. */
function Retry() {
  useEffect(() => {
    const timer = setInterval(() => {
      operations.ready().then(
        () => checkBuild({ isUrgent: true }),
        () => {},
      );
    }, 2_000);
    return () => clearInterval(timer);
  }, []);
  return null;
}

/** Shown before anything could be read: the server does not answer at all. */
function Away() {
  useEffect(() => {
    const timer = setInterval(() => loadSession().catch(() => {}), 2_000);
    return () => clearInterval(timer);
  }, []);
  return html`<main class="lone"><${Mark} /><h1>The server does not answer</h1>
    <p>This page asks again every two seconds. On the server's machine: <code>loomlog status</code> shows what runs, <code>loomlog up</code> starts it.</p></main>`;
}

/** What became of a sign-in with an identity provider, by the word of the address it came back to. @type {Record<string, string>} */
const SIGN_IN_PROBLEMS = {
  away: "The identity provider does not answer. Try again in a moment.",
  denied: "The identity provider has not signed you in, or the sign-in was cancelled.",
  refused: "The sign-in does not count here: it took too long, or your account has no access. The log of the server has the reason.",
};

function ProviderButtons() {
  const issuers = (login.value?.issuers ?? []).filter((issuer) => issuer.page);
  const to = here.value.path === "/login" ? "/ui" : location.pathname + location.search;
  return issuers.map(
    (issuer) => html`<${Button} key=${issuer.name} kind="primary" onClick=${() => location.assign(`/ui/sign-in?${new URLSearchParams({ issuer: issuer.name, to })}`)}>Sign in with ${issuer.title}<//>`,
  );
}

function SignIn() {
  const problem = SIGN_IN_PROBLEMS[here.value.query.get("problem") ?? ""];
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  useEffect(() => {
    // An application that opened this window may hand a token over, if the configuration names its origin.
    const taken = (event) => {
      if (!login.value?.login_origins?.includes(event.origin)) return;
      if (event.data?.type === "loomlog-token" && typeof event.data.token === "string") send(event.data.token);
    };
    addEventListener("message", taken);
    return () => removeEventListener("message", taken);
  }, []);
  async function send(text) {
    setBusy(true);
    setError("");
    try {
      await signIn(text);
      setToken("");
    } catch (failure) {
      setError(failure instanceof ApiError ? failure.message : "The server does not answer.");
    }
    setBusy(false);
  }
  return html`
    <main class="lone">
      <form class="card sign-in" onSubmit=${(event) => (event.preventDefault(), token.trim() && send(token.trim()))}>
        <${Mark} />
        <h1>Sign in to ${NAME}</h1>
        ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
        <${ProviderButtons} />
        <label for="token">Token</label>
        <input id="token" type="password" autocomplete="current-password" autofocus value=${token} onInput=${(event) => setToken(event.currentTarget.value)} aria-describedby="token-help" aria-invalid=${error ? "true" : undefined} />
        ${error ? html`<p class="problem" role="alert">${error}</p>` : null}
        <${Button} kind="primary" type="submit" isBusy=${isBusy} isDisabled=${!token.trim()}>Sign in<//>
        <p id="token-help" class="hint">A token of the configuration file, such as the value of <code>LOOMLOG_AUTH_TOKEN</code>. It is kept in a cookie that scripts cannot read, until you sign out.</p>
      </form>
    </main>
  `;
}

const modules = new Map();

/** Loads the module of the page that the address names, so that the frame and the page are drawn together. @returns {Promise<void>} */
export async function loadFirstPage() {
  const page = found.peek()?.page;
  if (page) modules.set(page.load, (await page.load()).default);
}

function CurrentPage() {
  const target = found.value;
  const page = target?.page ?? null;
  const [state, setState] = useState(/** @type {any} */ (() => ({ page: modules.has(page?.load) ? page : null, view: modules.get(page?.load), error: null })));
  const load = () => {
    if (!page) return;
    const known = modules.get(page.load);
    if (known) return setState({ page, view: known, error: null });
    page.load().then(
      (module) => (modules.set(page.load, module.default), setState({ page, view: module.default, error: null })),
      (error) => {
        setState({ page, view: null, error });
        checkBuild({ isUrgent: true }); // modules of an older build are gone after an upgrade
      },
    );
  };
  useEffect(load, [page]);
  if (!target) return html`<${ErrorState} isPage error=${new ApiError(404, "not_found", `There is no page ${here.value.path}.`)} />`;
  if (!may(target.page.scope ?? "")) return html`<${Forbidden} isPage scope=${target.page.scope} />`;
  if (state.page !== page) return html`<${Loading} />`;
  if (state.error) return html`<${ErrorState} isPage error=${new ApiError(0, "unreachable", "A part of this page could not be loaded.")} onRetry=${load} />`;
  return html`<${Guarded} key=${page?.load === undefined ? "" : PAGES.indexOf(page)}><${state.view} params=${target.params} /><//>`;
}

/** A bug of one page leaves the frame usable and says what happened. */
function Guarded({ children }) {
  const [error, reset] = useErrorBoundary();
  useEffect(() => reset(), [here.value.path]);
  if (!error) return children;
  return html`<div class="state">
    <${Icon} name="triangle-alert" />
    <h2>This page has failed</h2>
    <p>${String(error?.message ?? error)}</p>
    <p class="actions"><${Button} onClick=${reset}>Try again<//> <${CopyButton} text=${String(error?.stack ?? error)} label="Copy the details" /></p>
  </div>`;
}
