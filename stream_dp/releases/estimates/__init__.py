"""What follows from releases: intervals for kept labels, and smoother counts.  All of it costs no privacy."""
