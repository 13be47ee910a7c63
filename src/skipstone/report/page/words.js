// Numbers in words, always with their totals; and elements whose content is only text.

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
const count = (n) => n.toLocaleString('en-US');

function size(bytes) {
  let value = bytes, at = 0;
  while (Math.abs(value) >= 999.95 && at < UNITS.length - 1) { value /= 1000; at += 1; }
  return at ? `${value.toFixed(1)} ${UNITS[at]}` : `${count(value)} B`;
}

function percent(part, whole) {
  if (!whole) return '0 %';
  let share = 100 * part / whole;
  if (part > 0 && part < whole) share = Math.min(Math.max(share, 0.1), 99.9);
  return `${share.toFixed(1).replace(/\.0$/, '')} %`;
}

const ofTotal = (part, whole, unit) => `${count(part)} of ${count(whole)} ${unit}`;
const known = (n) => n >= 0;

function element(name, options = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(options)) {
    if (key === 'text') made.textContent = value;
    else if (key === 'class') made.className = value;
    else if (key === 'colour') made.style.background = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

const byId = (id) => document.getElementById(id);
const read = (id) => JSON.parse(byId(id).textContent);
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// One tip for all: the first line is a name, the others are facts.
function showTip(lines, box) {
  const tip = byId('tip');
  tip.replaceChildren(...lines.map((line, at) => element(at ? 'div' : 'b', { text: line })));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, box.left + box.width / 2 - width / 2), innerWidth - width - 8);
  const below = box.bottom + 10 + height < innerHeight;
  tip.style.left = `${left}px`;
  tip.style.top = `${below ? box.bottom + 10 : Math.max(8, box.top - height - 10)}px`;
}

const hideTip = () => { byId('tip').hidden = true; };
