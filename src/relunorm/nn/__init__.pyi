from relunorm.nn.batchnorm import DecomposedBatchNorm as DecomposedBatchNorm
from relunorm.nn.batchnorm import decompose as decompose
from relunorm.nn.datapoint import DatapointInit as DatapointInit
from relunorm.nn.datapoint import datapoint_init_ as datapoint_init_
from relunorm.nn.live import live_init_ as live_init_
from relunorm.nn.reduced_space import constrain as constrain
from relunorm.nn.reduced_space import release as release
