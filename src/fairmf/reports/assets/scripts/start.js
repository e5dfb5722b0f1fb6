// What the page knows, where the slider stands, and who wants to hear of it.
document.documentElement.classList.add("scripted");
// Long tables are there for readers without scripts; with them they open when asked for.
document.querySelectorAll("details.folded").forEach((details) => details.removeAttribute("open"));
const data = JSON.parse(document.getElementById("data").textContent);
const state = { position: data.chosen, followers: [] };

const byId = (id) => document.getElementById(id);
const first = () => data.positions[0];
const current = () => data.positions[state.position];

function follow(update) {
  state.followers.push(update);
  update();
}

function moveTo(position) {
  const wanted = Math.min(Math.max(Math.round(position), 0), data.positions.length - 1);
  if (wanted === state.position) return;
  state.position = wanted;
  state.followers.forEach((update) => update());
}

// Text only ever goes in as text: names of items are whatever their owners typed.
function element(tag, text = "", className = "") {
  const made = document.createElement(tag);
  if (text !== "") made.textContent = text;
  if (className) made.className = className;
  return made;
}

function fill(parent, children) {
  parent.replaceChildren(...children);
}
