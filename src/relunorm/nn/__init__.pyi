from relunorm.nn.batchnorm import DecomposedBatchNorm as DecomposedBatchNorm
from relunorm.nn.batchnorm import decompose as decompose
from relunorm.nn.initialization import DatapointInit as DatapointInit
from relunorm.nn.initialization import datapoint_init_ as datapoint_init_
from relunorm.nn.initialization import live_init_ as live_init_
from relunorm.nn.reduced_space import constrain as constrain
from relunorm.nn.reduced_space import release as release
