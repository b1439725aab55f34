from sklearn.utils.estimator_checks import parametrize_with_checks

from relunorm.train.estimator import ReLURegressor


@parametrize_with_checks([ReLURegressor()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)
