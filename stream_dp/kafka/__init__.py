"""The clients of Kafka, and what is read through them."""
