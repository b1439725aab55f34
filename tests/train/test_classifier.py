"""`ReLUClassifier`: scikit-learn's contract, log-loss and its gradient, weights, calibration."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_iris, make_circles, make_moons
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import relunorm as rn
from relunorm.errors import InvalidInputError
from relunorm.train.classifier import ReLUClassifier
from relunorm.train.logistic import LogisticPerceptron, log_losses, stretch_of
from relunorm.train.task import Task


@parametrize_with_checks([ReLUClassifier(hidden=3, n_init=1)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
