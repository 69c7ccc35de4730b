"""The session with NVML: opening it, asking, and being refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Self

logger = logging.getLogger(__name__)

# Errors that will not go away by asking again.
_FINAL = (
    "NVML_ERROR_NOT_SUPPORTED",
    "NVML_ERROR_NO_PERMISSION",
    "NVML_ERROR_FUNCTION_NOT_FOUND",
    "NVML_ERROR_INVALID_ARGUMENT",
    "NVML_ERROR_DEPRECATED",
    "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
)


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU, or a MIG instance, that can be sampled.

    Attributes:
        index: NVML's index of the GPU.
        instance: Index of the MIG instance; None for a whole GPU.
        uuid: As CUDA_VISIBLE_DEVICES may name it.
        handle: NVML's.
    """

    index: int
    instance: int | None
    uuid: str | None
    handle: Any

    @property
    def label(self) -> str:
        """``GPU 0``, or ``GPU 0 MIG 1``."""
        return f"GPU {self.index}" + ("" if self.instance is None else f" MIG {self.instance}")


class Session:
    """A session with NVML; opening it never raises.

    Attributes:
        available: Whether NVML answers at all.
        driver: The driver's version.
    """

    def __init__(self) -> None:
        self.available = False
        self.driver: str | None = None
        self._refused: dict[tuple[str, str], list[str]] = {}
        self._never: set[tuple[str, str]] = set()
        self._lost: set[int] = set()
        self._lib: Any = None
        try:
            lib = import_module("pynvml")
        except Exception as error:
            self._note("NVML", str(error) or type(error).__name__, "")
            return
        try:
            lib.nvmlInit()
        except lib.NVMLError as error:
            self._note("NVML", str(error), "")
            return
        self._lib, self.available = lib, True
        self._final = self._codes(_FINAL)
        driver = self._read("the driver's version", None, "nvmlSystemGetDriverVersion")
        self.driver = None if driver is None else str(driver)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session; a second call does nothing."""
        if not self.available:
            return
        self.available = False
        try:
            self._lib.nvmlShutdown()
        except self._lib.NVMLError as error:
            # A lost GPU refuses this as well; nothing is left to mend.
            logger.debug("NVML: no orderly end: %s", error)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read: one line for each thing and reason, with the GPUs concerned."""
        lines = []
        for (what, why), where in self._refused.items():
            gpus = f" of {_listed(where)}" if any(where) else ""
            lines.append(f"{what}{gpus} cannot be read: {why}")
        return tuple(lines)

    def _text(self, what: str, device: Device, name: str) -> str | None:
        value = self._read(what, device, name, device.handle)
        return value.decode() if isinstance(value, bytes) else value

    def _try(self, name: str, *arguments: Any) -> Any:
        """Ask for what need not be there."""
        try:
            return getattr(self._lib, name)(*arguments)
        except (self._lib.NVMLError, AttributeError):
            return None

    def _read(
        self,
        what: str,
        device: Device | None,
        name: str,
        *arguments: Any,
        absent: Sequence[str] = (),
        otherwise: Any = None,
    ) -> Any:
        """Ask for something; None, and a note, when it is refused.

        Args:
            what: Its name, for the note.
            device: Whose it is; None for the driver's.
            name: NVML's function.
            *arguments: Its arguments.
            absent: Names of errors that are an answer: the device has no such thing.
            otherwise: What to return then.
        """
        label = device.label if device else ""
        gone = device is not None and device.index in self._lost
        if not self.available or gone or (what, label) in self._never:
            return None
        try:
            return getattr(self._lib, name)(*arguments)
        except self._lib.NVMLError as error:
            if error.value in self._codes(absent):
                return otherwise
            self._refuse(what, device, error)
        except AttributeError:
            self._never.add((what, label))
            self._note(what, f"this nvidia-ml-py has no {name}", label)
        return None

    def _codes(self, names: Iterable[str]) -> set[int]:
        """NVML's errors by name; an old nvidia-ml-py does not have them all."""
        return {getattr(self._lib, name) for name in names if hasattr(self._lib, name)}

    def _refuse(self, what: str, device: Device | None, error: Any) -> None:
        label = device.label if device else ""
        if device is not None and error.value == self._lib.NVML_ERROR_GPU_IS_LOST:
            self._lost.add(device.index)
            self._note("anything", str(error), f"GPU {device.index}")
            return
        if error.value in self._final:
            self._never.add((what, label))
        self._note(what, str(error), label)

    def _note(self, what: str, why: str, where: str) -> None:
        known = self._refused.setdefault((what, why), [])
        if not known:
            logger.warning("%s%s cannot be read: %s", what, f" of {where}" if where else "", why)
        if where not in known:
            known.append(where)


def _listed(labels: list[str]) -> str:
    """``GPU 0, 1, 2``, or the labels one by one."""
    if all(label.startswith("GPU ") and label[4:].isdigit() for label in labels):
        return "GPU " + ", ".join(label[4:] for label in labels)
    return ", ".join(labels)
