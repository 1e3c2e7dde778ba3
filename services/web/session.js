// Who is signed in and what that caller may do. The token lies in an HttpOnly cookie that no script can read.
import { signal } from "./ui.js";
import { ApiError, connection, loginConfig, me as readMe, refusal, signedOut } from "./api.js";

const MEMBER = ["runs:create", "runs:read", "channel:publish", "channel:read", "memory:write", "providers:operator-key"];
/** @type {Record<string, string[]>} */
const INCLUDES = {
  "substrate:admin": ["substrate:tenant", "substrate:user", "tenant:read", ...MEMBER],
  "substrate:tenant": ["tenant:read", ...MEMBER],
  "substrate:user": ["runs:create", "runs:read"],
  ...Object.fromEntries(MEMBER.map((scope) => [scope, ["tenant:read"]])),
};

/** The caller as GET /v1/_me says it; null while unknown or signed out. */
export const me = signal(/** @type {Api.Me | null} */ (null));
export const login = signal(/** @type {Api.LoginConfig | null} */ (null));

/**
 * Whether the caller holds a scope, or all of several with spaces between, by which pages and buttons are shown; "": anybody. Isolated users
 * have runs alone.
 * @param {string} scope
 */
export function may(scope) {
  const caller = me.value;
  if (!caller) return false;
  return scope.split(" ").filter(Boolean).every((one) => (one.startsWith("runs:") || !caller.is_isolated) && caller.scopes.some((held) => held === one || INCLUDES[held]?.includes(one)));
}

/** Finds out who is signed in; leaves `me` at null when nobody is. */
export async function loadSession() {
  try {
    me.value = await readMe();
    signedOut.value = false;
  } catch (error) {
    me.value = null;
    if (!(error instanceof ApiError) || error.status !== 401) {
      // A proxy without its server, or a server in trouble: that is no reason to ask for a token.
      if (connection.value === "ok") connection.value = "away";
      throw error;
    }
    login.value = await loginConfig().catch(() => null);
  }
}

/** Exchanges a token for the cookie. Throws the server's refusal. @param {string} token */
export async function signIn(token) {
  const answer = await fetch("/ui/session", { method: "POST", headers: { authorization: `Bearer ${token}` } });
  if (!answer.ok) throw await refusal(answer);
  await loadSession();
}

export async function signOut() {
  await fetch("/ui/logout", { method: "POST" });
  me.value = null;
  signedOut.value = true;
  login.value = await loginConfig().catch(() => null);
}
