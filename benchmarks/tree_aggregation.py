"""TensorFlow Privacy's tree aggregation, measured: run by the Python of an environment of its own.

python -m benchmarks.tree_aggregation ROUNDS LABELS NODE_SD

It prints JSON: by aggregator, the standard deviation of the noise of a running count after each round.
"""

import json
import sys


def main(rounds: int, labels: int, node_sd: float) -> None:
    import numpy as np
    import tensorflow as tf
    from tensorflow_privacy.privacy.dp_query import tree_aggregation

    measured = {}
    for name in ("TreeAggregator", "EfficientTreeAggregator"):
        noise = tree_aggregation.GaussianNoiseGenerator(node_sd, tf.TensorSpec([labels]), seed=1)
        aggregator = getattr(tree_aggregation, name)(noise)
        state, sds = aggregator.init_state(), []
        for _ in range(rounds):
            count, state = aggregator.get_cumsum_and_update(state)
            sds.append(float(np.sqrt(np.mean(np.square(count.numpy(), dtype=np.float64)))))
        measured[name] = sds
    print(json.dumps(measured))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
