// The pages: address, title, icon, the scope that a caller needs, and the module. A further page is one entry here and one module.

/**
 * @typedef {{path: string, title: string, icon?: string, group?: string, scope?: string, load: () => Promise<any>, hidden?: boolean}} Page
 *   hidden: reached by links, not from the navigation. The module's default export is the component; it gets `params`.
 */

/** @type {Page[]} */
export const PAGES = [
  { path: "/runs", title: "Runs", icon: "list", group: "Work", scope: "runs:read", load: () => import("./pages/runs.js") },
  { path: "/start", title: "Start", icon: "play", group: "Work", scope: "runs:create", load: () => import("./pages/start.js") },
  { path: "/inbox", title: "Inbox", icon: "inbox", group: "Work", scope: "runs:read", load: () => import("./pages/inbox.js") },
  { path: "/activity", title: "Activity", icon: "activity", group: "Observe", scope: "substrate:admin", load: () => import("./pages/activity.js") },
  { path: "/usage", title: "Usage", icon: "coins", group: "Observe", scope: "runs:read tenant:read", load: () => import("./pages/usage.js") },
  { path: "/log", title: "Log", icon: "scroll-text", group: "Observe", scope: "substrate:admin", load: () => import("./pages/log.js") },
  { path: "/library", title: "Library", icon: "library", group: "Build", scope: "tenant:read", load: () => import("./pages/library.js") },
  { path: "/channels", title: "Channels", icon: "radio", group: "Build", scope: "channel:read", load: () => import("./pages/channels.js") },
  { path: "/schedules", title: "Schedules", icon: "calendar-clock", group: "Build", scope: "substrate:tenant", load: () => import("./pages/schedules.js") },
  { path: "/webhooks", title: "Webhooks", icon: "webhook", group: "Build", scope: "substrate:tenant", load: () => import("./pages/webhooks.js") },
  { path: "/memory", title: "Memory", icon: "database", group: "Build", scope: "tenant:read", load: () => import("./pages/memory.js") },
  { path: "/operations", title: "Operations", icon: "server", group: "Operate", scope: "tenant:read", load: () => import("./pages/operations.js") },
  { path: "/access", title: "Access", icon: "users", group: "Operate", scope: "substrate:tenant", load: () => import("./pages/access.js") },

  { path: "/runs/:run/compare/:other", title: "Compare runs", hidden: true, scope: "runs:read", load: () => import("./pages/compare.js") },
  { path: "/runs/:run/*view", title: "Run", hidden: true, scope: "runs:read", load: () => import("./pages/run.js") },
  { path: "/library/*rest", title: "Library", hidden: true, scope: "tenant:read", load: () => import("./pages/library.js") },
  { path: "/channels/*rest", title: "Channel", hidden: true, scope: "channel:read", load: () => import("./pages/channels.js") },
  { path: "/schedules/:id", title: "Schedule", hidden: true, scope: "substrate:tenant", load: () => import("./pages/schedules.js") },
  { path: "/webhooks/*rest", title: "Webhook", hidden: true, scope: "substrate:tenant", load: () => import("./pages/webhooks.js") },
  { path: "/memory/*rest", title: "Memory", hidden: true, scope: "tenant:read", load: () => import("./pages/memory.js") },
  { path: "/log/*rest", title: "Log", hidden: true, scope: "substrate:admin", load: () => import("./pages/log.js") },
  { path: "/entities", title: "Families", hidden: true, scope: "substrate:tenant", load: () => import("./pages/entities.js") },
  { path: "/entities/:family", title: "Families", hidden: true, scope: "substrate:tenant", load: () => import("./pages/entities.js") },
  { path: "/access/*rest", title: "Access", hidden: true, scope: "substrate:tenant", load: () => import("./pages/access.js") },
  { path: "/operations/*rest", title: "Operations", hidden: true, scope: "tenant:read", load: () => import("./pages/operations.js") },
];
