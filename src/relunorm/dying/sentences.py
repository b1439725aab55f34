"""What to do about units that do nothing, in the words of the framework the model is from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relunorm.display.shown import counted
from relunorm.dying.target import TargetAdvice

if TYPE_CHECKING:
    from relunorm.dying.diagnosis import LayerDiagnosis

#: Share of the units above which dead or dormant ones are worth more than watching.
MANY = 0.05


@dataclass(frozen=True)
class Words:
    """What a user of one framework does.

    Attributes:
        restart: after a layer has died. revive: about dead units. watch: about a few of them.
        recycle: about dormant units; empty where nothing does it.
        layer_norm: how a layer norm is written, which was measured to be better still where the
            architecture is free (docs/dying.md).
    """

    restart: str
    revive: str
    watch: str
    recycle: str
    layer_norm: str


_KERAS = (
    "the callback relunorm.dying.adapters.keras.Revive (dense Sequential models, torch backend)"
)
_TORCH_LAYERS = "nn.Sequential(nn.Linear(n, h), nn.LayerNorm(h), nn.ReLU(), ...)"

#: By framework; the empty one is a file or a network, which is trained elsewhere.
WORDS = {
    "torch": Words(
        "Re-initialise with relunorm.dying.live_ and train again.",
        "revive with relunorm.dying.revive_live_(model, batch, optimizer) and go on training, or "
        "train with relunorm.dying.Reviver.",
        "watch with DeadUnitMonitor.",
        "relunorm.dying.redo_(model, batch, optimizer) recycles them.",
        _TORCH_LAYERS,
    ),
    "keras": Words(
        f"Build the model anew, for fresh weights, and train it with {_KERAS}.",
        f"go on training with {_KERAS}.",
        "watch with the callback relunorm.dying.adapters.keras.DeadUnits (torch backend).",
        f"{_KERAS} renews them in training.",
        "Dense(h), LayerNormalization(), ReLU()",
    ),
    "sklearn": Words(
        "Fit again with another random_state or a smaller learning_rate_init.",
        "scikit-learn cannot revive units of a fitted model; fit again with another random_state "
        "or a smaller learning_rate_init.",
        "a fit with another random_state may use them.",
        "a fit with another random_state may use them.",
        "",
    ),
    "": Words(
        "It has to be trained again from new weights.",
        "they can be revived where the model is trained (torch: relunorm.dying.revive_live_; "
        "Keras: the callback relunorm.dying.adapters.keras.Revive), not in its file.",
        "nothing to worry about.",
        "they can be recycled where the model is trained (torch: relunorm.dying.redo_; Keras: the "
        "callback relunorm.dying.adapters.keras.Revive), not in its file.",
        _TORCH_LAYERS,
    ),
}
WORDS["onnx"] = WORDS[""]


def sentences(
    layers: Sequence[LayerDiagnosis], target: TargetAdvice | None, proved: bool, framework: str
) -> tuple[str, ...]:
    """Advice in the order to follow it.

    Args:
        proved: whether a domain was given.
        framework: a key of `WORDS`; another one is met as a file is.
    """
    words = WORDS.get(framework, WORDS[""])
    units = sum(layer.width for layer in layers)
    dead = sum(int(layer.dead.sum()) for layer in layers)
    some = f"{dead} of {counted(units, 'unit')} {'is' if dead == 1 else 'are'}"
    lines = list(target.advice) if target is not None else []
    whole = [layer.name or str(layer.layer) for layer in layers if layer.dead.all()]
    if whole:
        lines.append(
            f"Every unit of {', '.join(whole)} is dead: nothing before it learns any more. "
            + words.restart
        )
    elif dead > MANY * units:
        lines.append(f"{some} dead on the data: {words.revive}{_layer_norm(words)}")
    elif dead:
        lines.append(f"{some} dead on the data; {words.watch}")
    dormant = sum(int(layer.dormant.sum()) for layer in layers)
    if dormant > MANY * units:
        lines.append(
            f"{dormant} unit{'s are' if dormant > 1 else ' is'} dormant: {words.recycle}"
            + ("" if dead > MANY * units else _layer_norm(words))
        )
    if proved:
        gone = sum(int(layer.provably_dead.sum()) for layer in layers
                   if layer.provably_dead is not None)  # fmt: skip
        if gone:
            which = "1 unit is" if gone == 1 else f"{gone} units are"
            lines.append(f"{which} dead on the whole domain and can be removed exactly.")
    elif dead:
        lines.append("Give a domain to learn which of the dead units are dead for every input.")
    copies = sum(int(layer.duplicate.sum()) for layer in layers)
    if copies:
        repeat = "units repeat" if copies > 1 else "unit repeats"
        lines.append(f"{copies} {repeat} another one and can be merged exactly.")
    return tuple(lines) or ("Nothing to do: no unit is dead, dormant or a duplicate.",)


def _layer_norm(words: Words) -> str:
    if not words.layer_norm:
        return ""
    return (
        " If the architecture may change and the model is trained anew, a layer norm before each "
        f"rectifier, {words.layer_norm}, keeps units from dying in the first place. (It is not "
        "piecewise linear: such a model can be watched, but not loaded.)"
    )
