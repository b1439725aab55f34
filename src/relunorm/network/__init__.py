"""The one data type, and what it is made of: layers, the structure it was read as, its columns."""

from relunorm.network.layer import IDENTITY, RELU, Activation, Affine, Layer, substitute, whole
from relunorm.network.network import Network

__all__ = ["IDENTITY", "RELU", "Activation", "Affine", "Layer", "Network", "substitute", "whole"]
