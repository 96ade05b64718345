"""Golden numbers for tools/lab/stats: Friedman's test and the studentized range by scipy.

Run from the module root, with Debian's python3-scipy: /usr/bin/python3 tools/golden/friedman.py
"""
import json

import numpy as np
from scipy import stats

rng = np.random.default_rng(11)
# the last two have ties inside blocks; multiples of 1/8 are exact, so ties are ties
blocks = [("four methods on fourteen tasks", rng.normal(size=(14, 4))),
          ("three methods on four tasks", rng.normal(size=(4, 3))),
          ("fifty methods on six tasks", rng.normal(size=(6, 50)) + np.linspace(0, 2, 50)),
          ("five methods with ties", rng.integers(0, 6, (8, 5)) / 8),
          ("twenty methods with many ties", rng.integers(0, 4, (7, 20)) / 8)]
cases = []
for name, values in blocks:
    n, k = values.shape
    chi = stats.friedmanchisquare(*values.T)
    f = (n - 1) * chi.statistic / (n * (k - 1) - chi.statistic)
    cases.append({"name": name, "values": values.tolist(), "mean": stats.rankdata(-values, axis=1).mean(0).tolist(),
                  "chi": float(chi.statistic), "chi_p": float(chi.pvalue), "f": float(f),
                  "f_p": float(stats.f.sf(f, k - 1, (k - 1) * (n - 1)))})

ranges = [{"k": k, "alpha": alpha, "q": float(stats.studentized_range.ppf(1 - alpha, k, np.inf))}
          for k in (2, 3, 5, 10, 20, 50, 100) for alpha in (.05, .1)]

with open("tools/lab/stats/testdata/friedman.json", "w") as f:
    json.dump({"cases": cases, "ranges": ranges}, f, indent=1)
