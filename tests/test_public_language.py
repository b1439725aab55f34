"""One language: the same word for the same thing in every public signature."""

from __future__ import annotations

import inspect

import pytest

import relunorm as rn

#: Words that mean something we already have a word for, and that word.
SYNONYMS = {
    "callback": "progress",
    "deadline": "time_limit",
    "generator": "random_state",
    "limit": "time_limit",
    "n_jobs": "workers",
    "on_progress": "progress",
    "rng": "random_state",
    "seed": "random_state",
    "timeout": "time_limit",
    "tol": "tolerance",
    "atol": "tolerance",
    "verbose": "progress",
}

#: scikit-learn's words for the parameters of an estimator.
ESTIMATORS = {"ReLURegressor", "ReLUClassifier"}

#: Names of a model or of a first and a second one, which come before anything else.
MODELS = {"network", "model", "first", "second", "certificate"}


def public() -> list[str]:
    return [name for name in sorted(rn.__all__) if callable(getattr(rn, name))]


def parameters(name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(getattr(rn, name)).parameters.values())
    except ValueError:
        return []


@pytest.mark.parametrize("name", [name for name in public() if name not in ESTIMATORS])
def test_no_second_word_for_the_same_thing(name):
    used = {p.name for p in parameters(name)} & SYNONYMS.keys()
    assert not used, {word: SYNONYMS[word] for word in used}


@pytest.mark.parametrize("name", public())
def test_a_domain_that_is_needed_follows_the_models(name):
    """``f(network, domain, ...)``; one that may be left out stands with the options."""
    names = [p.name for p in parameters(name) if p.name not in MODELS]
    needed = [p.name for p in parameters(name) if p.default is inspect.Parameter.empty]
    if names and needed and needed[0] in MODELS and "domain" in needed:
        assert names[0] == "domain"


@pytest.mark.parametrize("name", public())
def test_long_work_can_be_limited_and_watched_by_keyword(name):
    """A limit is never positional before what the question is about."""
    names = [p.name for p in parameters(name)]
    for word in ("time_limit", "progress", "workers", "random_state"):
        if word in names:
            needed = [p for p in parameters(name) if p.default is inspect.Parameter.empty]
            assert names.index(word) >= len([p for p in needed if p.kind != p.VAR_KEYWORD])
