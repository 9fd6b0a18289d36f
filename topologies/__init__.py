"""The Faust apps of a stream, each short enough for one screen."""
