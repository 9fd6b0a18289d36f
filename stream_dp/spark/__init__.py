"""The stream beyond one machine: Apache Spark reads, counts and finds labels, and the worker releases."""
