"""The computation: an epoch, its noisy histogram and the rounds it releases."""
