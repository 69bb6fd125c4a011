// @ts-check
/** Runs on the audio thread: the microphone's quanta in, 20 ms packets of 24 kHz pcm16 out. */

import { Resampler } from "./resampler.js";

const RATE_HZ = 24000;
const PACKET_SAMPLES = 480;

class Packetiser extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = sampleRate === RATE_HZ ? null : new Resampler(sampleRate, RATE_HZ);
    this.packet = new Int16Array(PACKET_SAMPLES);
    this.filled = 0;
    this.energy = 0;
  }

  /**
   * @param {Float32Array[][]} inputs one mono input; no channel while the track is silent
   * @returns {boolean} true: keep the node alive
   */
  process(inputs) {
    const channel = inputs[0][0];
    if (!channel) return true;
    const samples = this.resampler ? this.resampler.process(channel) : channel;
    for (const sample of samples) {
      const clipped = Math.max(-1, Math.min(1, sample));
      this.energy += clipped * clipped;
      this.packet[this.filled++] = Math.round(clipped * 32767);
      if (this.filled === PACKET_SAMPLES) this.deliver();
    }
    return true;
  }

  /** Hand the full packet over, with its level (root mean square, 0 to 1). */
  deliver() {
    const level = Math.sqrt(this.energy / PACKET_SAMPLES);
    this.port.postMessage({ samples: this.packet, level }, [this.packet.buffer]);
    this.packet = new Int16Array(PACKET_SAMPLES);
    this.filled = 0;
    this.energy = 0;
  }
}

registerProcessor("packetiser", Packetiser);
