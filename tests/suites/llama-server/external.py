"""A plugin of pytest for llama.cpp's tests of its server: they run against another server and load no models of their own."""

import utils

utils.ServerPreset.load_all = staticmethod(lambda: None)
