"""External code: functions and Jacobians, caches, differences, samples and executors."""
