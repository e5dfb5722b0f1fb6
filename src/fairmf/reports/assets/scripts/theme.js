// Light or dark: what the system says, until the reader says otherwise. Paper is always light.
const theme = { repaint: [], system: window.matchMedia("(prefers-color-scheme: dark)") };

const isDark = () => (document.documentElement.dataset.theme ?? (theme.system.matches ? "dark" : "light")) === "dark";
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function remembered(value) {
  // A file opened from a disk may have no storage.
  try {
    if (value === undefined) return window.localStorage.getItem("fairmf-theme");
    window.localStorage.setItem("fairmf-theme", value);
  } catch {
    return null;
  }
  return value;
}

function paint() {
  const button = byId("theme");
  button.setAttribute("aria-pressed", String(isDark()));
  theme.repaint.forEach((redraw) => redraw());
}

function startTheme() {
  const stored = remembered();
  if (stored === "dark" || stored === "light") document.documentElement.dataset.theme = stored;
  byId("theme").addEventListener("click", () => {
    const wanted = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = wanted;
    remembered(wanted);
    paint();
  });
  theme.system.addEventListener("change", paint);
  let before;
  window.addEventListener("beforeprint", () => {
    before = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    document.querySelectorAll("details.folded").forEach((details) => details.setAttribute("open", ""));
    paint();
  });
  window.addEventListener("afterprint", () => {
    if (before === undefined) delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = before;
    paint();
  });
  paint();
}
