// Cells on a canvas that act as buttons: one element of the page, however many cells there are.
//
// The element lies over the cell that has the focus and moves with the arrow keys (the roving
// tabindex of a grid, with one cell). Its text is also in the live region, for screen readers that
// do not read the focused element again.
//
// `shape` gives: label; count; box(i) -> {x, y, w, h}; at(x, y) -> i or -1; move(i, key) -> i;
// place(i) -> [row, column] from 1, and size() -> [rows, columns]; lines(i) -> texts;
// draw(context, width); height(width); open(i).

class Cells {
  constructor(home, shape) {
    this.shape = shape;
    this.now = 0;
    this.canvas = element('canvas', { 'aria-hidden': 'true' });
    this.cell = element('div', { role: 'gridcell', tabindex: '0', class: 'cell' });
    this.row = element('div', { role: 'row' }, this.cell);
    this.home = element('div', { class: 'cells', role: 'grid', 'aria-label': shape.label }, this.canvas, this.row);
    home.append(this.home);
    this.canvas.addEventListener('mousemove', (event) => this.hover(event));
    this.canvas.addEventListener('mouseleave', hideTip);
    this.canvas.addEventListener('click', (event) => {
      const at = this.under(event);
      if (at < 0) return;
      this.go(at);
      hideTip();
      this.shape.open(at);
    });
    this.cell.addEventListener('keydown', (event) => this.key(event));
    this.cell.addEventListener('focus', () => this.tell());
    this.cell.addEventListener('blur', hideTip);
    this.watch = new ResizeObserver(() => this.paint());
    this.watch.observe(this.home);
    this.paint();
  }

  close() { this.watch.disconnect(); }

  paint() {
    const width = Math.max(200, this.home.clientWidth);
    const height = this.shape.height(width);
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    const context = this.canvas.getContext('2d');
    context.scale(ratio, ratio);
    this.shape.draw(context, width, height);
    const [rows, columns] = this.shape.size();
    this.home.setAttribute('aria-rowcount', rows);
    this.home.setAttribute('aria-colcount', columns);
    this.put();
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.shape.at(event.clientX - box.left, event.clientY - box.top);
  }

  screenBox(at) {
    const box = this.canvas.getBoundingClientRect(), cell = this.shape.box(at);
    return { left: box.left + cell.x, top: box.top + cell.y, width: cell.w, bottom: box.top + cell.y + cell.h };
  }

  hover(event) {
    const at = this.under(event);
    if (at < 0) hideTip();
    else showTip(this.shape.lines(at), this.screenBox(at));
  }

  put() {
    if (!this.shape.count) { this.cell.hidden = true; return; }
    const box = this.shape.box(this.now), [row, column] = this.shape.place(this.now);
    Object.assign(this.cell.style, { left: `${box.x}px`, top: `${box.y}px`, width: `${box.w}px`, height: `${box.h}px` });
    this.row.setAttribute('aria-rowindex', row);
    this.cell.setAttribute('aria-colindex', column);
    this.cell.setAttribute('aria-label', this.shape.lines(this.now).join('; '));
    this.cell.dataset.at = this.now;
  }

  go(at) {
    this.now = Math.min(Math.max(at, 0), this.shape.count - 1);
    this.put();
  }

  focus() { this.cell.focus({ preventScroll: true }); this.cell.scrollIntoView({ block: 'nearest' }); this.tell(); }

  tell() {
    if (!this.shape.count) return;
    const lines = this.shape.lines(this.now);
    byId('said').textContent = lines.join('; ');
    if (this.cell.matches(':focus-visible')) showTip(lines, this.screenBox(this.now));
  }

  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      hideTip();
      this.shape.open(this.now);
      return;
    }
    const next = this.shape.move(this.now, event.key);
    if (next === null) return;
    event.preventDefault();
    this.go(next);
    this.cell.scrollIntoView({ block: 'nearest' });
    this.tell();
  }
}
