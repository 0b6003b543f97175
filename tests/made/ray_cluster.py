"""A Ray cluster on this machine, whose workers get the functions of the test module whole."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any

import pytest

SECONDS_TO_START = 300  # after which something hangs
NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
# a node that is lost is noticed within seconds
HEALTH = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000, "health_check_failure_threshold": 4}


def quiet_ray(test: Any) -> Any:
    """Ray leaves its pipes and log files to the garbage collector, and announces changes of its own defaults."""
    for ignored in ("::ResourceWarning", "::pytest.PytestUnraisableExceptionWarning", ":.*RAY_.*:FutureWarning"):
        test = pytest.mark.filterwarnings(f"ignore{ignored}")(test)
    return test


def import_ray(module: str) -> ModuleType:
    """Ray, which sends the functions of a test module by value: workers cannot import it."""
    ray: ModuleType = pytest.importorskip("ray", reason="Ray comes with the extra ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[module])
    return ray


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not within {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def ray_cluster(n_nodes: int) -> Iterator[Any]:
    """A cluster of nodes of one core each; a connection of this process is closed at the end."""
    import ray
    from ray.cluster_utils import Cluster

    nodes = Cluster()
    try:
        try:
            with time_limit(SECONDS_TO_START):
                nodes.add_node(**NODE, include_dashboard=False, _system_config=HEALTH)
                for _ in range(n_nodes - 1):
                    nodes.add_node(**NODE)
        except (TimeoutError, RuntimeError, OSError) as error:
            pytest.skip(f"no Ray cluster starts here: {error}")
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
