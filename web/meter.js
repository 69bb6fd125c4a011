// @ts-check
/** The small level meter: the last two seconds of sound as bars. */

const NUM_BARS = 24;
const PACKETS_PER_BAR = 4;
/** Quieter than this is drawn as silence. */
const FLOOR_DB = -54;

/** Draws on a canvas in the canvas's own CSS colour. */
export class Meter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    /** @type {number[]} */
    this.bars = [];
    this.peak = 0;
    this.count = 0;
    this.clear();
  }

  /** Silence everywhere. */
  clear() {
    this.bars = new Array(NUM_BARS).fill(0);
    this.peak = 0;
    this.count = 0;
    this.draw();
  }

  /**
   * @param {number} level root mean square of a packet, 0 to 1
   * @returns {number} the same on the meter's scale, 0 to 1
   */
  push(level) {
    const height = Math.max(0, 1 - (20 * Math.log10(level + 1e-9)) / FLOOR_DB) ** 1.5;
    this.peak = Math.max(this.peak, height);
    if (++this.count % PACKETS_PER_BAR === 0) {
      this.bars = [...this.bars.slice(1), this.peak];
      this.peak = 0;
      this.draw();
    }
    return height;
  }

  draw() {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const width = canvas.clientWidth * scale;
    const height = canvas.clientHeight * scale;
    if (canvas.width !== width || canvas.height !== height)
      Object.assign(canvas, { width, height });
    const pen = canvas.getContext("2d");
    if (!pen) return;
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = getComputedStyle(canvas).color;
    const step = width / NUM_BARS;
    this.bars.forEach((bar, i) => {
      const tall = Math.max(2 * scale, bar * height);
      pen.beginPath();
      pen.roundRect(i * step, (height - tall) / 2, step * 0.5, tall, step * 0.25);
      pen.fill();
    });
  }
}
