"""The monitor, and revival, as Keras 3 callbacks, on the torch backend.

Keras layers multiply by themselves instead of calling torch's, and Keras optimizers keep their own
state, so revival here reads both from Keras: a Sequential model's layers say who reads whom.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import torch

from relunorm.arguments import real_number, whole_number
from relunorm.dying.adapters import Watching, framework, on_first_use
from relunorm.errors import InvalidInputError


def _on_torch(keras: Any) -> None:
    """Refuse a Keras that does not run on torch."""
    if keras.config.backend() != "torch":
        raise InvalidInputError(
            f"Keras runs on {keras.config.backend()}; the monitor sees torch calls only: "
            "set KERAS_BACKEND=torch before importing keras"
        )


def _callbacks() -> tuple[type, type]:
    keras = framework("keras")

    class DeadUnits(Watching, keras.callbacks.Callback):
        """Watches the model during fit and adds its numbers to the epoch logs.

        Needs KERAS_BACKEND=torch: there a Keras model is a torch module and its calls can be seen.

        Args:
            **options: of `DeadUnitMonitor` (window, tau, linear, every).
        """

        def __init__(self, **options: Any):
            super().__init__(**options)
            _on_torch(keras)

        def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
            self.start(self.model)

        def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
            if logs is not None:
                logs.update({name.replace("/", "_"): v for name, v in self.numbers().items()})

        on_train_end = Watching.ended

    class Revive(Watching, keras.callbacks.Callback):
        """Renews dead and dormant units of a Sequential model of dense layers during fit.

        A unit whose mean |activation| is at most ``tau`` times its layer's mean gets new incoming
        weights (Glorot uniform), bias 0 and outgoing weights 0, and the optimizer's moments of
        those entries become 0. A dead unit gave nothing, so on the data it was dead on the outputs
        stay as they are. Unlike `Reviver`, the optimizer's one step count is kept (Adam's first
        steps of a new unit are up to 3.2 learning rates long) and nothing is pulled back.

        Args:
            every: training batches between revivals. tau: as above; 0 renews dead units only.
            random_state: seed of the new weights.

        Attributes:
            history: (batches so far, units renewed by layer) of each revival.
        """

        def __init__(self, every: int = 50, tau: float = 0.025, random_state: int = 0):
            super().__init__(window=every, tau=tau)
            _on_torch(keras)
            self.every, self.tau = whole_number("every", every, 1), real_number("tau", tau)
            if tau < 0:
                raise InvalidInputError(f"tau is {tau}, expected at least 0")
            self.random_state = whole_number("random_state", random_state, 0)
            self.history: list[tuple[int, dict[str, list[int]]]] = []

        def on_train_begin(self, logs: dict[str, float] | None = None) -> None:
            _check_optimizer(keras, self.model.optimizer)
            self._readers = _readers(keras, self.model)
            self._gen = torch.Generator().manual_seed(self.random_state)
            self._batches, self.history = 0, []
            self.start(self.model)

        def on_train_batch_end(self, batch: int, logs: dict[str, float] | None = None) -> None:
            self._batches += 1
            if self._batches % self.every == 0:
                self.history.append((self._batches, self._revive()))

        @torch.no_grad()
        def _revive(self) -> dict[str, list[int]]:
            assert self.monitor is not None
            if not self.monitor.batches:
                raise InvalidInputError(
                    f"no forward pass of the model was seen in {self.every} batches: compiled "
                    "passes are not; use jit_compile=False"
                )
            done, left = {}, []
            for site in self.monitor.report().sites:
                units = np.flatnonzero((site.dead & (not site.leaky)) | (site.score <= self.tau))
                if not len(units):
                    continue
                pair = self._readers.get(site.name)
                if pair is None or not all(layer.trainable for layer in pair):
                    left.append(site.name)
                    continue
                _renew(self.model.optimizer, *pair, torch.as_tensor(units), self._gen)
                done[site.name] = units.tolist()
            self.monitor.reset()  # what was seen before is of the units that are gone
            if left and not done:
                warnings.warn(
                    "no unit was revived: every rectifier with units to revive is frozen or not "
                    f"between two dense layers ({', '.join(left)})",
                    RuntimeWarning,
                    stacklevel=2,
                )
            return done

        on_train_end = Watching.ended

    return DeadUnits, Revive


#: Where the supported optimizers keep a number per weight.
_MOMENTS = ("momentums", "_momentums", "_velocities", "_velocity_hats", "_average_gradients")


def _check_optimizer(keras: Any, optimizer: Any) -> None:
    known = keras.optimizers.Adam, keras.optimizers.SGD, keras.optimizers.RMSprop
    if not isinstance(optimizer, known):  # AdamW is an Adam
        raise InvalidInputError(
            f"the optimizer is {type(optimizer).__name__}; revival can renew the state of SGD, "
            "Adam, AdamW and RMSprop"
        )
    if optimizer.use_ema or optimizer.gradient_accumulation_steps:
        raise InvalidInputError(
            "the optimizer averages weights or gathers gradients (use_ema, "
            "gradient_accumulation_steps), which would bring renewed units' old values back"
        )


def _readers(keras: Any, model: Any) -> dict[str, tuple[Any, Any]]:
    """By rectifier: the dense layer that makes its units and the dense layer that reads them."""
    if not isinstance(model, keras.Sequential):
        raise InvalidInputError(
            f"the model is a {type(model).__name__}; revival in Keras knows who reads whom in a "
            "Sequential model only"
        )
    found: dict[str, tuple[Any, Any]] = {}
    maker, rectifier = None, ""  # of the units that the next layer is given
    for layer in model.layers:
        rectifies = getattr(layer, "activation", None) is keras.activations.relu
        if type(layer) is keras.layers.Dense:
            plain = not (layer.lora_enabled or layer.quantization_mode)
            if maker is not None and rectifier and plain:
                found[rectifier] = maker, layer
            straight = layer.activation is keras.activations.linear
            maker = layer if plain and (rectifies or straight) else None
            rectifier = layer.name if rectifies else ""
        elif not rectifier and (
            (type(layer) is keras.layers.Activation and rectifies)
            or (type(layer) is keras.layers.ReLU and _is_plain(layer))
        ):
            rectifier = layer.name
        elif type(layer) is not keras.layers.Dropout:
            maker, rectifier = None, ""
    return found


def _is_plain(layer: Any) -> bool:
    return not layer.negative_slope and not layer.threshold and layer.max_value is None


def _renew(optimizer: Any, maker: Any, reader: Any, units: Any, gen: torch.Generator) -> None:
    """New units in place: incoming weights drawn, outgoing ones 0, moments of both 0."""
    kernel, outgoing = maker.kernel.value, reader.kernel.value
    units = units.to(kernel.device)
    limit = math.sqrt(6 / sum(kernel.shape))
    drawn = (torch.rand(kernel.shape[0], len(units), generator=gen) * 2 - 1) * limit
    kernel[:, units] = drawn.to(kernel)
    outgoing[units] = 0.0
    entries = [(maker.kernel, (slice(None), units)), (reader.kernel, (units,))]
    if maker.bias is not None:
        maker.bias.value[units] = 0.0
        entries.append((maker.bias, (units,)))
    for variable, index in entries:
        at = optimizer._get_variable_index(variable)
        for moments in (getattr(optimizer, name, None) for name in _MOMENTS):
            if moments:
                moments[at].value[index] = 0.0


__getattr__ = on_first_use(globals(), _callbacks)
