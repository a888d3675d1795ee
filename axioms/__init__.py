"""The algebra: laws of the operators, and the class table that they give a program.

``terms.term`` defines expressions, ``terms.law`` laws; the laws are in one file per family and
``laws.registry`` lists them all. ``saturation`` applies them to a program, with egglog, and returns
a ``ClassTable``. ``proof.find`` derives a µGraph from its program and ``certificate`` replays that.
Nothing is imported here, so that reading a term or a law does not load egglog.
"""
