// The inside of a file: a lane for each column, the rows of the file from left to right. A lane
// shows the pages as bands between their least and greatest value, the rows to read
// below, and how full the Bloom filter of a row group is at the right edge of each.

const PLACES = 100000, LANE = 84, TOP = 11, BAND = 50, STRIP = 8, FOOT = 64;

class Inside {
  constructor(file, open) {
    Object.assign(this, { file, open, label: 'Columns and row groups of the file', zoom: null, width: 800 });
  }

  // The columns of cells: row groups; in one of them, its pages, which differ by column.
  units(column) {
    const { groups } = this.file;
    if (this.zoom === null) {
      return { first: groups.first, rows: groups.rows, lo: column.lo, hi: column.hi, hit: groups.hit };
    }
    const pages = column.pages[this.zoom], start = groups.first[this.zoom];
    if (pages) return { ...pages, first: pages.first.map((row) => row + start) };
    const at = this.zoom;
    return { first: [start], rows: [groups.rows[at]], lo: [column.lo[at]], hi: [column.hi[at]], hit: [groups.hit[at]] };
  }

  get columns() { return this.file.columns; }
  get span() {
    const { groups, rows } = this.file;
    return this.zoom === null ? [0, Math.max(rows, 1)] : [groups.first[this.zoom], Math.max(groups.rows[this.zoom], 1)];
  }

  get starts() {
    if (!this.cached || this.cachedZoom !== this.zoom) {
      this.cachedZoom = this.zoom;
      this.cached = [0];
      this.laid = this.columns.map((column) => this.units(column));
      for (const units of this.laid) this.cached.push(this.cached.at(-1) + units.first.length);
    }
    return this.cached;
  }

  get count() { return this.starts.at(-1); }
  size() { return [this.columns.length, Math.max(...this.laid.map((units) => units.first.length), 0)]; }
  height(width) { this.width = width; return Math.max(LANE, this.columns.length * LANE); }

  // Column and unit of cell `at`.
  which(at) {
    const { starts } = this;
    let column = 0;
    while (column + 1 < this.columns.length && starts[column + 1] <= at) column += 1;
    return [column, at - starts[column]];
  }

  place(at) { const [column, unit] = this.which(at); return [column + 1, unit + 1]; }
  x(row) { const [from, rows] = this.span; return (row - from) / rows * this.width; }

  box(at) {
    const [column, unit] = this.which(at), units = this.laid[column];
    const left = this.x(units.first[unit]), right = this.x(units.first[unit] + units.rows[unit]);
    return { x: left, y: column * LANE + TOP - 3, w: Math.max(3, right - left - 1), h: FOOT + 4 };
  }

  at(x, y) {
    const { starts } = this, column = Math.floor(y / LANE), [from, rows] = this.span;
    if (column < 0 || column >= this.columns.length || x < 0 || x > this.width) return -1;
    const row = from + x / this.width * rows;
    return starts[column] + this.holding(this.laid[column], row);
  }

  holding(units, row) {
    let low = 0, high = units.first.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (units.first[middle] <= row) low = middle; else high = middle - 1;
    }
    return low;
  }

  move(at, key) {
    const [column, unit] = this.which(at), { starts } = this, last = this.laid[column].first.length - 1;
    if (key === 'ArrowLeft') return starts[column] + Math.max(0, unit - 1);
    if (key === 'ArrowRight') return starts[column] + Math.min(last, unit + 1);
    if (key === 'Home') return starts[column];
    if (key === 'End') return starts[column] + last;
    if (key !== 'ArrowUp' && key !== 'ArrowDown') return null;
    const next = column + (key === 'ArrowUp' ? -1 : 1);
    if (next < 0 || next >= this.columns.length) return at;
    const units = this.laid[column];
    return starts[next] + this.holding(this.laid[next], units.first[unit] + units.rows[unit] / 2);
  }

  draw(context, width) {
    void this.starts;
    const ink = { band: colour('band'), hit: colour('bandhit'), faint: colour('faint'), line: colour('line'), bloom: colour('bloom'), soft: colour('soft'), card: colour('card') };
    const { groups } = this.file;
    this.columns.forEach((column, lane) => {
      const top = lane * LANE;
      context.fillStyle = ink.faint;
      context.fillRect(0, top + TOP, width, BAND);
      if (this.zoom === null) groups.first.forEach((first, group) => this.drawUnits(context, top, this.pagesOrChunk(column, group), ink));
      else this.drawUnits(context, top, this.laid[lane], ink);
      context.fillStyle = ink.line;
      context.fillRect(0, top + LANE - 1, width, 1);
      groups.first.forEach((first, group) => {
        if (this.zoom !== null && group !== this.zoom) return;
        const left = this.x(first), right = this.x(first + groups.rows[group]);
        context.fillStyle = ink.soft;
        context.globalAlpha = 0.45;
        if (left > 1) context.fillRect(left - 0.5, top + TOP - 4, 1, FOOT + 6);
        context.globalAlpha = 1;
        if (column.bloom[group]) this.drawBloom(context, top, right, right - left, column.bloom[group], ink);
      });
      if (!this.laid[lane].lo.some(known) && !column.lo.some(known)) {
        context.fillStyle = ink.soft;
        context.font = '12px system-ui, sans-serif';
        context.fillText('no bounds are stored for this column', 10, top + TOP + BAND / 2 + 4);
      }
    });
  }

  pagesOrChunk(column, group) {
    const { groups } = this.file, pages = column.pages[group], start = groups.first[group];
    if (pages && pages.first.length) {
      // Pages without bounds lie in those of their row group.
      const bounded = pages.lo.some(known);
      return { ...pages, first: pages.first.map((row) => row + start),
        lo: bounded ? pages.lo : pages.lo.map(() => column.lo[group]),
        hi: bounded ? pages.hi : pages.hi.map(() => column.hi[group]) };
    }
    return { first: [start], rows: [groups.rows[group]], lo: [column.lo[group]], hi: [column.hi[group]], hit: [groups.hit[group]] };
  }

  drawUnits(context, top, units, ink) {
    // Within a row group, from the least to the greatest of the row group.
    let [least, extent] = [0, PLACES];
    if (this.zoom !== null && units.lo.some(known)) {
      least = units.lo.reduce((least, lo) => (known(lo) ? Math.min(least, lo) : least), PLACES);
      extent = Math.max(1, units.hi.reduce((most, hi) => Math.max(most, hi), 0) - least);
    }
    const thin = this.x(units.first[0] + units.rows[0]) - this.x(units.first[0]) > 5 ? 1 : 0;
    units.first.forEach((first, at) => {
      const left = this.x(first), width = Math.max(0.7, this.x(first + units.rows[at]) - left - thin);
      const read = units.hit[at] > 0, lo = units.lo[at], hi = units.hi[at];
      if (known(lo) && known(hi)) {
        const y = top + TOP + BAND - (BAND * (hi - least)) / extent, h = Math.max(2.5, (BAND * (hi - lo)) / extent);
        context.fillStyle = read ? ink.hit : ink.band;
        context.globalAlpha = read ? 0.95 : 0.55;
        context.fillRect(left, Math.min(y, top + TOP + BAND - 2.5), width, h);
        context.globalAlpha = 1;
      }
      context.fillStyle = read ? ink.hit : ink.line;
      context.fillRect(left, top + TOP + BAND + 4, read ? Math.max(width, 1.5) : width, STRIP - 2);
    });
  }

  drawBloom(context, top, right, room, [, fill], ink) {
    const width = Math.max(2, Math.min(8, room / 5)), x = right - width - (room > 12 ? 2 : 0);
    context.fillStyle = ink.card;
    context.fillRect(x - 1, top + TOP, width + 1, BAND);
    context.fillStyle = ink.bloom;
    context.globalAlpha = 0.28;
    context.fillRect(x, top + TOP, width, BAND);
    context.globalAlpha = 1;
    if (known(fill)) context.fillRect(x, top + TOP + BAND * (1 - fill / 1000), width, BAND * fill / 1000);
  }

  lines(at) {
    const [c, unit] = this.which(at), column = this.columns[c], { file } = this;
    const group = this.zoom === null ? unit : this.zoom, rows = file.groups.rows[group];
    const lines = [`${column.name}, row group ${ofTotal(group + 1, file.groups_total, 'row groups')}`];
    const pages = column.pages[group];
    if (this.zoom !== null && pages) {
      lines[0] = `${column.name}, page ${ofTotal(unit + 1, pages.first.length, 'pages')} of row group ${count(group + 1)}`;
      lines.push(`${ofTotal(pages.hit[unit], pages.rows[unit], 'rows to read')}`);
      lines.push(`${size(pages.bytes[unit])} of ${size(column.bytes[group])} of the column chunk`);
      lines.push(bounds(pages.min[unit], pages.max[unit]));
      if (known(pages.nulls[unit])) lines.push(ofTotal(pages.nulls[unit], pages.rows[unit], 'rows are null').replace('rows are null', 'values are null'));
      lines.push(`encoding ${pages.encoding[unit] || column.encodings[group]}, ${column.codec[group]}`);
      return lines;
    }
    lines.push(`${ofTotal(file.groups.hit[group], rows, 'rows to read')}`);
    lines.push(`${size(column.bytes[group])} of ${size(file.groups.bytes[group])} of the row group; ${size(column.raw[group])} before ${column.codec[group]}`);
    lines.push(bounds(column.min[group], column.max[group]));
    if (known(column.nulls[group])) lines.push(ofTotal(column.nulls[group], column.values[group], 'values are null'));
    lines.push(`encodings ${column.encodings[group]}`);
    if (pages) lines.push(ofTotal(pages.hit.filter((hit) => hit > 0).length, pages.first.length, 'pages to read'));
    if (column.why[group]) lines.push(column.why[group]);
    lines.push(bloomWords(column.bloom[group]));
    return lines;
  }
}

const bounds = (low, high) => (low === null && high === null ? 'no bounds' : `from ${low ?? '?'} to ${high ?? '?'}`);

function bloomWords(bloom) {
  if (!bloom) return 'no Bloom filter';
  const [bytes, fill] = bloom, much = known(bytes) ? `of ${size(bytes)}` : '';
  if (!known(fill)) return `Bloom filter ${much}, its bits were not counted`;
  const bits = 8 * bytes;
  return `Bloom filter ${much}: ${(fill / 10).toFixed(1)} % of ${count(bits)} bits are set`;
}

function laneNames(file) {
  const box = element('div', { class: 'names' });
  const stored = file.stored_total;
  for (const column of file.columns) {
    const bytes = column.bytes.reduce((sum, each) => sum + Math.max(each, 0), 0);
    const order = { ascending: 'sorted, ascending', descending: 'sorted, descending', unsorted: 'unsorted' }[column.order] || 'order not known';
    box.append(element('div', column.named ? { class: 'named' } : {}, element('b', { text: column.name, title: column.name }),
      element('small', { text: `${column.type}, ${size(bytes)} of ${size(stored)}` }),
      element('small', { text: `${order}${column.scale === 'order' ? ', bands by order' : ''}` }),
      element('small', { text: column.low === null ? 'no bounds' : `${column.low} … ${column.high}`, title: `${column.low ?? '?'} … ${column.high ?? '?'}` })));
  }
  return box;
}

// Draws `file` into `home`; gives the cells, and `out`, which goes up one step where there is one.
function drawInside(file, home) {
  const crumb = element('div', { class: 'crumb' }), axis = element('div', { class: 'axis', 'aria-hidden': 'true' });
  const lanes = element('div', { class: 'lanes' }), right = element('div');
  lanes.append(axis, laneNames(file), right);
  home.append(keysOf(file), crumb, lanes);
  const shape = new Inside(file, (at) => {
    const [column, unit] = shape.which(at);
    if (shape.zoom === null) zoomTo(unit, column);
  });
  const cells = new Cells(right, shape);
  function label() {
    const [from, rows] = shape.span;
    axis.replaceChildren();
    for (const share of [0, 0.25, 0.5, 0.75, 1]) {
      const mark = element('span', { text: `${share ? '' : 'row '}${count(Math.round(from + rows * share))}` });
      mark.style.left = `${share * 100}%`;
      mark.style.transform = `translateX(${-share * 100}%)`;
      axis.append(mark);
    }
    if (shape.zoom === null) {
      crumb.replaceChildren(element('span', { text: `${ofTotal(file.groups.rows.length, file.groups_total, 'row groups')} and ${ofTotal(file.columns.length, file.columns_total, 'columns')} are drawn; open a row group for its pages` }));
    } else {
      const back = element('button', { type: 'button', class: 'back', text: 'All row groups' });
      back.addEventListener('click', () => { zoomTo(null, 0); cells.focus(); });
      const hit = file.groups.hit[shape.zoom], inGroup = file.groups.rows[shape.zoom];
      crumb.replaceChildren(back, element('span', { text: `Row group ${ofTotal(shape.zoom + 1, file.groups_total, 'row groups')}: ${ofTotal(hit, inGroup, 'rows to read')}; bands reach over the row group's values alone` }));
    }
  }
  function zoomTo(group, column) {
    const before = shape.zoom;
    shape.zoom = group;
    shape.label = group === null ? 'Columns and row groups of the file' : 'Columns and pages of the row group';
    cells.home.setAttribute('aria-label', shape.label);
    void shape.starts;
    cells.now = shape.starts[column] + (group === null && before !== null ? before : 0);
    label();
    cells.paint();
    cells.tell();
  }
  label();
  // Begin where something is read, in a column of the predicate.
  const first = Math.max(0, file.columns.findIndex((column) => column.named));
  cells.go(shape.starts[first] + Math.max(0, file.groups.hit.findIndex((hit) => hit > 0)));
  return { cells, shape, out() { if (shape.zoom === null) return false; zoomTo(null, shape.which(cells.now)[0]); return true; } };
}

function keysOf(file) {
  const chip = (name, text) => {
    const swatch = element('i', { class: name === 'band' ? 'chip pale' : 'chip' });
    swatch.style.background = `var(--${name})`;
    return element('span', {}, swatch, text);
  };
  const keys = element('div', { class: 'keys' }, chip('bandhit', 'to read'), chip('band', 'skipped'), 'Bands reach from the least to the greatest value of a page, rows run from left to right');
  if (file.columns.some((column) => column.bloom.some(Boolean))) keys.append(chip('bloom', 'how full a Bloom filter is'));
  return keys;
}
