// The empty frame that index.html shows while the modules are loaded, as this person has it: colours and navigation. No module, so that it
// runs before anything is seen. After: settings.js.
try {
  const { theme, navigationClosed } = JSON.parse(localStorage.getItem("loomlog.ui") ?? "{}") ?? {};
  if (["light", "dark", "contrast"].includes(theme)) document.documentElement.dataset.theme = theme;
  if (navigationClosed === true) document.querySelector(".frame")?.classList.add("closed");
} catch {
  // Nothing is kept, or what is kept cannot be read: the defaults stay.
}
