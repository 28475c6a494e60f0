"""Recipes of sound."""

from __future__ import annotations

from ..audio import AddNoise, CenterTimeCrop, RandomTimeCrop, TimeShift
from ..spectrogram import FrequencyMasking, MelSpectrogram, TimeMasking, ToDecibels
from .recipe import Steps


def keyword_spotting_train(rate: int = 16000, seconds: float = 1.0, n_mels: int = 40) -> Steps:
    """Give a training transform for short words: log mels of sounds that are moved and masked, with noise.

    Windows of 25 ms every 10 ms; the shift of 100 ms is that of Warden, "Speech Commands", 2018, and the masks are
    those of Park et al., "SpecAugment", 2019, for short sounds.

    Args:
        rate: samples per second.
        seconds: of the sounds, which are cropped or filled up.
        n_mels: frequencies.
    """
    length = round(rate * seconds)
    shift = min(0.1 / seconds, 1.0)
    sound: Steps = [AddNoise((10, 40), 0.8), RandomTimeCrop(length), TimeShift(shift)]
    return [*sound, *_log_mels(rate, n_mels), TimeMasking(25), FrequencyMasking(7)]


def keyword_spotting_eval(rate: int = 16000, seconds: float = 1.0, n_mels: int = 40) -> Steps:
    """Give the evaluation transform beside `keyword_spotting_train`, by its arguments."""
    return [CenterTimeCrop(round(rate * seconds)), *_log_mels(rate, n_mels)]


def speech_train(
    rate: int = 16000,
    n_mels: int = 80,
    time_masks: int = 2,
    time_mask: int = 100,
    frequency_masks: int = 2,
    frequency_mask: int = 27,
) -> Steps:
    """Give a training transform for speech recognition: log mels with SpecAugment, padded to the longest of a batch.

    Park et al., "SpecAugment", 2019: its policy LD for LibriSpeech, without the warping of time.

    Args:
        rate: samples per second.
        n_mels: frequencies.
        time_masks, time_mask: how many, and the longest in frames of 10 ms.
        frequency_masks, frequency_mask: how many, and the widest in frequencies.
    """
    masks: Steps = [FrequencyMasking(frequency_mask) for _ in range(frequency_masks)]
    return [*_log_mels(rate, n_mels), *masks, *(TimeMasking(time_mask) for _ in range(time_masks))]


def speech_eval(rate: int = 16000, n_mels: int = 80) -> Steps:
    """Give the evaluation transform beside `speech_train`, by its arguments."""
    return _log_mels(rate, n_mels)


def _log_mels(rate: int, n_mels: int) -> Steps:
    return [MelSpectrogram(rate, round(0.025 * rate), hop_length=round(0.01 * rate), n_mels=n_mels), ToDecibels()]
