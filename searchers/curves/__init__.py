"""Learning curves: fitted with several families of shapes, and forecast with their uncertainty.

::

    fit = fit_curve([(1, 0.31), (2, 0.48), (3, 0.57)], mode="max")
    if fit.known:
        ahead = forecast(fit, until=50, limits=(0.0, 1.0))
        ahead.quantiles(50, (0.1, 0.5, 0.9))  # of the metric at iteration 50
        ahead.chance_of(0.95)                 # that it reaches 0.95 by then
        ahead.runs_until(0.95)                # when it has, over-estimated on purpose
"""

from .families import FAMILIES, Family
from .fitting import CurveFit, fit_curve
from .forecasting import OPTIMISTIC, Forecast, ModelError, forecast

__all__ = [
    "FAMILIES",
    "OPTIMISTIC",
    "CurveFit",
    "Family",
    "Forecast",
    "ModelError",
    "fit_curve",
    "forecast",
]
