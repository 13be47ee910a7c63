// The files of a table: one cell each, in listing order, coloured by what skipped it.

const STATES = [
  ['read', 'Read', 'may hold a match: opened'],
  ['s1', 'Skipped by file', 'by partition values or an index over whole files'],
  ['s2', 'Skipped by row groups', 'no row group can hold a match'],
  ['s3', 'Skipped by pages', 'no page can hold a match'],
  ['s4', 'Skipped by rows', 'no row matches'],
  ['s5', 'Skipped', 'the plan does not record the level'],
];
const MARKS = [null, ['stale', 'Changed since indexed'], ['missing', 'Not indexed yet']];

class Grid {
  constructor(data, open) {
    Object.assign(this, { data, open, count: data.names.length, label: 'Files of the table' });
    this.only = null;    // the only state that is shown in full
    this.onlyMark = null;
    this.found = null;   // a Set of the files whose names match
    this.across = 1;
    this.side = 12;
  }

  // As large as fits all on one screen, between 5 and 26 pixels.
  height(width) {
    let side = 26;
    while (side > 5 && Math.ceil(this.count / Math.floor(width / side)) * side > 520) side -= 1;
    this.side = side;
    this.across = Math.max(1, Math.floor(width / side));
    return Math.max(side, Math.ceil(this.count / this.across) * side);
  }

  size() { return [Math.ceil(this.count / this.across), this.across]; }
  place(at) { return [Math.floor(at / this.across) + 1, at % this.across + 1]; }

  box(at) {
    const gap = this.side > 12 ? 2 : 1;
    return { x: at % this.across * this.side, y: Math.floor(at / this.across) * this.side, w: this.side - gap, h: this.side - gap };
  }

  at(x, y) {
    const column = Math.floor(x / this.side);
    if (x < 0 || y < 0 || column >= this.across) return -1;
    const found = Math.floor(y / this.side) * this.across + column;
    return found < this.count ? found : -1;
  }

  move(at, key) {
    const page = this.across * 10;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.across, ArrowDown: this.across, PageUp: -page, PageDown: page }[key];
    if (key === 'Home') return 0;
    if (key === 'End') return this.count - 1;
    if (step === undefined) return null;
    const next = at + step;
    return next < 0 || next >= this.count ? at : next;
  }

  shown(at) {
    return (this.only === null || Number(this.data.state[at]) === this.only)
      && (this.onlyMark === null || Number(this.data.mark[at]) === this.onlyMark)
      && (this.found === null || this.found.has(at));
  }

  // Where no file has a fact, a mark on each is useless.
  get marked() { return this.data.marks[2][0] < this.data.files_total; }

  draw(context) {
    const colours = STATES.map(([name]) => colour(name)), marks = MARKS.map((each) => each && colour(each[0]));
    const ground = colour('ground'), round = this.side > 9 ? 2 : 0;
    for (let at = 0; at < this.count; at += 1) {
      const { x, y, w, h } = this.box(at), mark = Number(this.data.mark[at]);
      context.globalAlpha = this.shown(at) ? 1 : 0.13;
      context.fillStyle = colours[Number(this.data.state[at])];
      if (round) { context.beginPath(); context.roundRect(x, y, w, h, round); context.fill(); } else context.fillRect(x, y, w, h);
      if (mark && this.marked) {
        const leg = Math.max(3, w * 0.55), rim = w > 10 ? 2.5 : 0;
        for (const [reach, fill] of [[leg + rim, ground], [leg, marks[mark]]]) {
          context.fillStyle = fill;
          context.beginPath();
          context.moveTo(x + w - reach, y);
          context.lineTo(x + w, y);
          context.lineTo(x + w, y + reach);
          context.fill();
        }
      }
    }
    context.globalAlpha = 1;
  }

  lines(at) {
    const { data } = this, state = Number(data.state[at]), mark = Number(data.mark[at]);
    const lines = [data.names[at], `${STATES[state][1]}: ${STATES[state][2]}`];
    const rows = data.rows[at];
    lines.push(`file ${ofTotal(at + 1, data.files_total, 'files')}, ${size(data.sizes[at])} of ${size(data.total[1])}`);
    if (known(rows)) lines.push(state ? `0 of ${count(rows)} rows to read` : ofTotal(data.selected[at], rows, 'rows to read'));
    else lines.push('rows not known: there is no fact');
    if (mark) lines.push(`${MARKS[mark][1]}: its facts are not used`);
    return lines;
  }
}

function drawLegend(data, grid, redraw) {
  const [files, bytes] = data.total, buttons = [];
  const add = (name, title, more, tally, press, corner) => {
    const swatch = element('i', { 'aria-hidden': 'true' });
    swatch.style.background = `var(--${corner ? 's1' : name})`;
    if (corner) { swatch.className = 'corner'; swatch.style.color = `var(--${name})`; }
    const button = element('button', { type: 'button', 'aria-pressed': 'false', title: more }, swatch,
      element('b', { text: title }),
      element('span', { text: ofTotal(tally[0], files, 'files') }), element('span', { text: `${size(tally[1])} of ${size(bytes)}` }));
    button.disabled = !tally[0];
    button.addEventListener('click', () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      for (const each of buttons) each.setAttribute('aria-pressed', String(each === button && on));
      grid.only = grid.onlyMark = null;
      if (on) press();
      redraw();
    });
    buttons.push(button);
    byId('legend').append(button);
  };
  const order = [0, 1, 2, 3, 4, 5];
  for (const state of order) {
    const [name, title, more] = STATES[state];
    if (state === 5 && !data.tally[5][0]) continue;
    add(name, title, more, data.tally[state], () => { grid.only = state; }, false);
  }
  for (const mark of [1, 2]) {
    if (data.marks[mark][0]) add(MARKS[mark][0], MARKS[mark][1], 'their facts are not used: run refresh', data.marks[mark], () => { grid.onlyMark = mark; }, true);
  }
  for (const state of order) {
    if (!data.tally[state][0]) continue;
    const part = element('i');
    part.style.background = `var(--${STATES[state][0]})`;
    part.style.flexGrow = data.tally[state][0];
    byId('stack').append(part);
  }
}
