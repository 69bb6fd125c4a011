"""Whisper's log-mel spectrogram, for windows of any length up to the model's 30 s."""

from collections.abc import Sequence

import numpy as np
import torch
import torchaudio
from numpy.typing import NDArray

from sensorium.encoders.media import Samples

RATE_HZ = 16_000
HOP_SAMPLES = 160
FFT_SAMPLES = 400
FRAMES_PER_S = RATE_HZ // HOP_SAMPLES


class LogMel:
    """Computes log-mel features as in Radford et al. 2022, section 2.2 (openai/whisper, audio.py).

    A Hann window of 25 ms every 10 ms, `num_mels` slaney filters up to 8 kHz, log10 clamped to
    8 decades below the loudest value, scaled to about [-1, 1].
    """

    def __init__(self, num_mels: int = 80) -> None:
        self._window = torch.hann_window(FFT_SAMPLES)
        self._filters = torchaudio.functional.melscale_fbanks(  # [n_fft / 2 + 1, num_mels]
            FFT_SAMPLES // 2 + 1, 0.0, RATE_HZ / 2, num_mels, RATE_HZ, "slaney", "slaney"
        )

    def __call__(self, windows: Sequence[Samples], num_frames: int) -> NDArray[np.float32]:
        """Return features `[len(windows), num_mels, num_frames]`, each window followed by silence.

        A window may hold at most `num_frames` hops. Values that are not finite count as silence,
        and sound louder than full scale is clipped.
        """
        padded = torch.zeros(len(windows), num_frames * HOP_SAMPLES)
        for row, samples in zip(padded, windows, strict=True):
            row[: len(samples)] = torch.from_numpy(samples)
        padded = padded.nan_to_num_(0.0, 0.0, 0.0).clamp_(-1.0, 1.0)
        spectrum = torch.stft(
            padded, FFT_SAMPLES, HOP_SAMPLES, window=self._window, return_complex=True
        )
        power = spectrum[..., :-1].abs().square()  # [B, n_fft / 2 + 1, num_frames]
        mel = torch.matmul(self._filters.T, power)  # [B, num_mels, num_frames]
        log = mel.clamp_(min=1e-10).log10_()
        log = torch.maximum(log, log.amax(dim=(1, 2), keepdim=True) - 8.0)
        return ((log + 4.0) / 4.0).numpy()
