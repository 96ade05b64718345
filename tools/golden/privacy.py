"""Golden numbers for federation/privacy, by Google's dp-accounting 0.6.0 (pip install dp-accounting).

Run from the module root: python3 tools/golden/privacy.py
Each case: noise multiplier z (noise on the sum over the clip norm), rate q or m of n clients, rounds, delta, the epsilon that the
accountant gives, and Rényi divergences of one round at some orders, null where they are infinite. For fixed-size samples the accountant takes noise over the
sensitivity, which is 2 for one update of norm 1 replaced by another: it is given z/2,
and where its bound is above that of no sampling, which holds too, the lower one counts.
"""
import json
import math

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import rdp_privacy_accountant as rdp

ORDERS = [1.1, 1.7, 2, 2.5, 3, 5.3, 8, 10.9, 17, 63, 128, 256, 512, 1024]


def curve(poisson, z, q, orders):
    if poisson:
        return rdp._compute_rdp_poisson_subsampled_gaussian(q, z, orders)
    sampled, all_of_them = (rdp._compute_rdp_sample_wor_gaussian(p, z / 2, orders) for p in (q, 1.0))
    return np.minimum(sampled, all_of_them)


def case(poisson, z, m, n, rounds, delta):
    if poisson:
        a = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
        a.compose(dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(m / n, dp_event.GaussianDpEvent(z)), rounds))
        epsilon = a.get_epsilon(delta)
    else:
        orders = rdp.DEFAULT_RDP_ORDERS
        epsilon = rdp.compute_epsilon(orders, rounds * curve(poisson, z, m / n, orders), delta)[0]
    return {"poisson": poisson, "noise": z, "m": m, "n": n, "rounds": rounds, "delta": delta, "epsilon": float(epsilon),
            "orders": ORDERS, "divergence": [float(v) if math.isfinite(v) else None for v in curve(poisson, z, m / n, ORDERS)]}


def main():
    cases = []
    for poisson in (True, False):
        for z, m, n, rounds, delta in [(1.0, 1, 10, 50, 1e-5), (1.1, 256, 60000, 10000, 1e-5), (0.6, 20, 100, 30, 1e-3),
                                       (4.0, 10, 20, 100, 1e-4), (2.0, 100, 1000, 500, 1e-6), (8.0, 4, 4, 15, 1e-2), (0.8, 8, 8, 1, 1e-5),
                                       (20.0, 1, 1000, 3, 1e-3), (6.0, 95, 100, 40, 1e-5)]:
            cases.append(case(poisson, z, m, n, rounds, delta))
    with open("federation/privacy/testdata/epsilon.json", "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
