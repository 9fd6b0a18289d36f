"""One-shot mechanisms: top-k, set unions, histograms and label votes, as functions of arrays."""
