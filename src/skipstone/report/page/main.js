// The page: theme, headline, files or the one file, and the sheet over a file that was opened.

const data = read('data');
const painted = [];
const repaint = () => painted.forEach((cells) => cells.paint());

function theme(dark) {
  document.documentElement.dataset.theme = dark ? 'dark' : 'light';
  const button = byId('theme');
  button.setAttribute('aria-pressed', String(dark));
  button.textContent = dark ? 'Light' : 'Dark';
  button.setAttribute('aria-label', dark ? 'Light colours' : 'Dark colours');
  repaint();
}

const wanted = matchMedia('(prefers-color-scheme: dark)');
let chosen = null;
theme(wanted.matches);
wanted.addEventListener('change', () => { if (chosen === null) theme(wanted.matches); });
byId('theme').addEventListener('click', () => {
  chosen = document.documentElement.dataset.theme !== 'dark';
  theme(chosen);
});

byId('kicker').textContent = data.kind === 'file' ? 'Skipstone: one Parquet file' : 'Skipstone: what a query reads, and what it skips';
byId('table').textContent = data.table;
byId('predicate').textContent = data.predicate;
byId('headline').textContent = data.headline[0].toUpperCase() + data.headline.slice(1);
byId('made').textContent = `Made by Skipstone ${data.version}.`;

function fact(text, value) { return element('li', {}, element('b', { text: value }), ` ${text}`); }

function factsOf(file) {
  const pages = file.columns.flatMap((column) => column.pages).filter(Boolean);
  const hit = file.groups.hit.reduce((sum, each) => sum + each, 0);
  const list = element('ul', { class: 'facts' },
    fact(`of ${count(file.rows)} rows to read`, count(hit)),
    fact(`of ${count(file.groups_total)} row groups to read`, count(file.groups.hit.filter((each) => each > 0).length)));
  if (pages.length) {
    const total = pages.reduce((sum, each) => sum + each.first.length, 0);
    const read = pages.reduce((sum, each) => sum + each.hit.filter((rows) => rows > 0).length, 0);
    list.append(fact(`of ${count(total)} pages to read, of all columns`, count(read)));
  }
  list.append(fact(`in columns, of ${size(file.size)}`, size(file.stored_total)));
  return list;
}

// -- the sheet over one file ----------------------------------------------------------------------

const sheet = byId('sheet');
let opened = null;

function closeSheet() {
  if (!opened) return;
  if (opened.inside) {
    opened.inside.cells.close();
    painted.splice(painted.indexOf(opened.inside.cells), 1);
  }
  const { back } = opened;
  opened = null;
  sheet.hidden = true;
  sheet.replaceChildren();
  byId('main').inert = false;
  hideTip();
  back();
}

function openSheet(at, grid, cells) {
  const name = data.names[at], state = Number(data.state[at]), mark = Number(data.mark[at]);
  const close = element('button', { type: 'button', id: 'close', text: 'Close' });
  close.addEventListener('click', closeSheet);
  const swatch = element('i', { class: 'chip' });
  swatch.style.background = `var(--${STATES[state][0]})`;
  const list = element('ul', { class: 'facts' }, element('li', {}, swatch, element('b', { text: STATES[state][1] }), `: ${STATES[state][2]}`));
  if (mark) list.append(element('li', { text: `${MARKS[mark][1]}: its facts are not used` }));
  sheet.replaceChildren(element('div', { class: 'head' }, element('h2', { id: 'sheet-title', text: name }), close), list);
  const held = byId(`file-${at}`), file = held && JSON.parse(held.textContent);
  sheet.hidden = false;
  opened = { at, back: () => cells.focus(), inside: null };
  if (file && !file.trouble) {
    list.after(factsOf(file));
    opened.inside = drawInside(file, sheet);
    painted.push(opened.inside.cells);
  } else {
    for (const line of grid.lines(at).slice(2)) sheet.append(element('p', { text: line }));
    let why = file ? `Its inside cannot be drawn: ${file.trouble}` : 'It need not be opened: its inside was not read for this picture.';
    if (!file && !state) why = `Its inside is not drawn: those of ${ofTotal(data.opened.length, data.tally[0][0], 'files to read')} are.`;
    sheet.append(element('p', { class: 'note', text: why }));
  }
  byId('main').inert = true;
  if (opened.inside) opened.inside.cells.focus(); else close.focus();
}

sheet.addEventListener('keydown', (event) => {
  if (event.key === 'Escape') {
    event.preventDefault();
    if (!(opened.inside && opened.inside.out())) closeSheet();
  } else if (event.key === 'Tab') {
    // The focus stays in the sheet while it is open.
    const all = [...sheet.querySelectorAll('button, [tabindex="0"]')], to = event.shiftKey ? all[0] : all.at(-1);
    if (document.activeElement === to) { event.preventDefault(); (event.shiftKey ? all.at(-1) : all[0]).focus(); }
  }
});

// -- the table, or the file -----------------------------------------------------------------------

function drawTable() {
  byId('overview').hidden = false;
  const grid = new Grid(data, (at) => openSheet(at, grid, cells));
  byId('files-title').textContent = `${count(data.names.length)} files`;
  const cells = new Cells(byId('grid'), grid);
  painted.push(cells);
  cells.go(Math.max(0, data.state.indexOf('0')));
  drawLegend(data, grid, () => cells.paint());
  const notes = [];
  if (data.names.length < data.files_total) notes.push(`${ofTotal(data.names.length, data.files_total, 'files')} are drawn, the first of the listing; the counts are of all.`);
  notes.push(`The inside of ${ofTotal(data.opened.length, data.tally[0][0], 'files to read')} can be opened${data.opened.length < data.tally[0][0] ? ', the first of them' : ''}.`);
  if (!grid.marked) notes.push(`${ofTotal(data.marks[2][0], data.files_total, 'files')} are not indexed.`);
  byId('notes').textContent = notes.join(' ');
  const search = byId('search'), lower = data.names.map((name) => name.toLowerCase());
  let hits = [];
  search.addEventListener('input', () => {
    const text = search.value.trim().toLowerCase();
    hits = [];
    if (text) lower.forEach((name, at) => { if (name.includes(text)) hits.push(at); });
    grid.found = text ? new Set(hits) : null;
    byId('found').textContent = text ? ofTotal(hits.length, data.names.length, 'files') : '';
    cells.paint();
  });
  search.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && hits.length) {
      event.preventDefault();
      cells.go(hits[0]);
      cells.focus();
    } else if (event.key === 'Escape' && search.value) {
      event.preventDefault();
      search.value = '';
      search.dispatchEvent(new Event('input'));
    }
  });
}

function drawFile() {
  const home = byId('alone'), file = read('file-0');
  home.hidden = false;
  home.append(factsOf(file));
  const inside = drawInside(file, home);
  painted.push(inside.cells);
  home.addEventListener('keydown', (event) => { if (event.key === 'Escape' && inside.out()) event.preventDefault(); });
}

function drawFunnel() {
  // Every index has null counts; they get a line only when they skip.
  const used = data.steps.filter((step) => step.used && step.considered && (step.index !== 'nulls' || step.kept < step.considered));
  if (!used.length) return;
  const body = element('tbody');
  for (const step of used) {
    const bar = element('i'), name = element('td', { class: 'mono', text: `${step.index}(${step.column})` });
    bar.style.width = `${100 * step.kept / step.considered}%`;
    bar.style.display = step.kept ? 'block' : 'none';
    body.append(element('tr', {}, element('td', { text: step.level.replace('_', ' ').replace('object', 'file') }), name,
      element('td', { text: ofTotal(step.kept, step.considered, `${step.unit} kept`) }),
      element('td', { text: step.requests ? `${size(step.bytes_read)} in ${count(step.requests)} ${step.requests === 1 ? 'request' : 'requests'}` : 'in memory' }),
      element('td', { class: 'wide' }, element('div', { class: 'track', 'aria-hidden': 'true' }, bar))));
  }
  const head = element('tr', {}, ...['level', 'index', 'considered and kept', 'read for it', ''].map((text) => element('th', { text })));
  byId('funnel').append(element('table', {}, element('thead', {}, head), body));
}

if (data.kind === 'file') drawFile(); else drawTable();
drawFunnel();
document.documentElement.dataset.ready = 'yes';
