// @ts-check
/** A streaming sample-rate converter: polyphase windowed sinc, exact for any pair of integer rates. */

/** Zero crossings of the sinc on each side; 16 with the window below keep aliases under -80 dB. */
const ZERO_CROSSINGS = 16;
/** Pass band as a share of the lower rate's Nyquist frequency. */
const PASS_BAND = 0.92;
/** Shape of the Kaiser window (about 80 dB of stop-band attenuation). */
const KAISER_BETA = 8;

/** Mono float samples in, mono float samples out; keeps its state between calls. */
export class Resampler {
  /**
   * @param {number} fromHz rate of the input, an integer
   * @param {number} toHz rate of the output, an integer
   */
  constructor(fromHz, toHz) {
    const divisor = gcd(fromHz, toHz);
    this.phases = toHz / divisor;
    this.stride = fromHz / divisor;
    const cutoff = 0.5 * PASS_BAND * Math.min(1, toHz / fromHz); // cycles per input sample
    this.half = Math.ceil(ZERO_CROSSINGS / (2 * cutoff));
    this.filters = Array.from({ length: this.phases }, (_, phase) =>
      filter(this.half, cutoff, phase / this.phases),
    );
    this.history = new Float32Array(2 * this.half);
    /** Position of the next output, in 1/phases of an input sample, relative to `history`'s start. */
    this.position = this.half * this.phases;
  }

  /**
   * @param {Float32Array} input any number of samples
   * @returns {Float32Array} the samples that are now complete
   */
  process(input) {
    const signal = new Float32Array(this.history.length + input.length);
    signal.set(this.history);
    signal.set(input, this.history.length);
    const end = (signal.length - this.half) * this.phases;
    const output = new Float32Array(Math.max(0, Math.ceil((end - this.position) / this.stride)));
    for (let i = 0; i < output.length; i++, this.position += this.stride) {
      const taps = this.filters[this.position % this.phases];
      const first = Math.floor(this.position / this.phases) - this.half + 1;
      let sum = 0;
      for (let k = 0; k < taps.length; k++) sum += taps[k] * signal[first + k];
      output[i] = sum;
    }
    this.history = signal.slice(signal.length - 2 * this.half);
    this.position -= input.length * this.phases;
    return output;
  }
}

/**
 * Taps for an output that lies `offset` (0 to 1) after an input sample; their sum is 1.
 * @param {number} half
 * @param {number} cutoff
 * @param {number} offset
 */
function filter(half, cutoff, offset) {
  const taps = Float32Array.from({ length: 2 * half }, (_, k) => {
    const t = k - (half - 1) - offset;
    const ratio = Math.min(1, Math.abs(t) / half);
    const window = bessel0(KAISER_BETA * Math.sqrt(1 - ratio * ratio)) / bessel0(KAISER_BETA);
    const x = 2 * Math.PI * cutoff * t;
    return 2 * cutoff * (x === 0 ? 1 : Math.sin(x) / x) * window;
  });
  const sum = taps.reduce((a, b) => a + b, 0);
  return taps.map((tap) => tap / sum);
}

/** Modified Bessel function of the first kind, order 0. @param {number} x */
function bessel0(x) {
  let sum = 1;
  for (let term = 1, k = 1; term > 1e-12 * sum; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

/** @param {number} a @param {number} b @returns {number} */
function gcd(a, b) {
  return b === 0 ? a : gcd(b, a % b);
}
