"""Who speaks now: silero-vad through onnxruntime, the windows of many streams in one call."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from sensorium.encoders.media import Samples

RATE_HZ = 16_000
WINDOW_SAMPLES = 512
CONTEXT_SAMPLES = 64
_STATE_WIDTH = 128


@dataclass(slots=True)
class VadState:
    """What the detector remembers of one stream: `recurrent` [2, 128] and the last 64 samples."""

    recurrent: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros((2, _STATE_WIDTH), np.float32)
    )
    context: Samples = field(default_factory=lambda: np.zeros(CONTEXT_SAMPLES, np.float32))


class SpeechDetector:
    """Silero-vad 6 for 16 kHz (github.com/snakers4/silero-vad); one thread, no spinning.

    `model_path` is the ONNX file or the folder that holds `silero_vad.onnx`.
    """

    rate_hz = RATE_HZ

    def __init__(self, model_path: Path) -> None:
        path = model_path / "silero_vad.onnx" if model_path.is_dir() else model_path
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self._rate = np.array(RATE_HZ, np.int64)

    def open(self) -> VadState:
        """Return the state of a new stream."""
        return VadState()

    def score(self, windows: list[Samples], states: list[VadState]) -> list[float]:
        """Return the probability of speech in each window of 512 samples; updates the states.

        Window i belongs to stream i, so no state may stand twice in one call. Values that are not
        finite count as silence. Raises ValueError on a window of another length.
        """
        if not windows:
            return []
        rows = np.empty((len(windows), CONTEXT_SAMPLES + WINDOW_SAMPLES), np.float32)
        for row, window, state in zip(rows, windows, states, strict=True):
            if len(window) != WINDOW_SAMPLES:
                raise ValueError(f"a window has {WINDOW_SAMPLES} samples, not {len(window)}")
            row[:CONTEXT_SAMPLES] = state.context
            row[CONTEXT_SAMPLES:] = window
        np.nan_to_num(rows, copy=False, nan=0.0, posinf=0.0, neginf=0.0)
        recurrent = np.stack([state.recurrent for state in states], axis=1)  # [2, B, 128]
        scores, recurrent = self._session.run(
            None, {"input": rows, "state": recurrent, "sr": self._rate}
        )
        for i, (row, state) in enumerate(zip(rows, states, strict=True)):
            state.recurrent = recurrent[:, i]
            state.context = row[-CONTEXT_SAMPLES:].copy()
        return [float(score) for score in scores[:, 0]]
